//! Prints the manifest: tables, segments, maps, indexes, devices.

use std::sync::Arc;

use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::Result;
use cleave_catalog::storage_error::Identity;
use cleave_catalog::storage_error::SegmentFault;
use cleave_catalog::value::value_text;
use cleave_engine::storage_engine::Engine;
use cleave_store::{AbsentValues, PageClass, SegmentDirectory, SegmentId, SegmentKind, ZoneValue};

use super::absent;

pub(super) fn manifest(state: &CatalogState) -> Vec<String> {
    let mut lines = vec![
        format!("database    {}", Identity(state.database.0)),
        format!("epoch       {}", state.epoch),
        format!("generation  {}", state.generation),
        format!("commit      {}", state.commit),
    ];
    for device in state.devices() {
        let (id, name, address) = (device.id, &device.name, device.address());
        let identity = Identity(device.identity);
        lines.push(format!("device {id}    \"{name}\", {address}, identity {identity}"));
    }
    for table in state.damaged_tables() {
        let schema = &table.schema;
        lines.push(format!(
            "table       \"{}\", id {}, schema version {}, cannot be used",
            schema.name, schema.table_id, schema.version
        ));
        lines.extend(damaged(&table.faults));
    }
    for table in state.tables() {
        let schema = &table.schema;
        lines.push(format!(
            "table       \"{}\", id {}, schema version {}, {} rows",
            schema.name,
            schema.table_id,
            schema.version,
            table.row_count()
        ));
        for column in &schema.columns {
            let null = if column.not_null { " not null" } else { "" };
            let default =
                column.default.as_ref().map(|text| format!(" default {text}")).unwrap_or_default();
            lines.push(format!(
                "  column {:<3} \"{}\" {}{null}{default}",
                column.id,
                column.name,
                column.column_type.sql_name()
            ));
        }
        if table.tablets.len() > 1 {
            let division = table.division.describe(schema);
            lines.push(format!("  {} tablets by {division}", table.tablets.len()));
        }
        for tablet in &table.tablets {
            lines.push(format!(
                "  tablet {:<3} on device {}, next VID {}, {} runs in the version map",
                tablet.id.0,
                tablet.device,
                tablet.next_vid,
                tablet.version_map.runs().len()
            ));
            lines.extend(tablet.segments().map(|segment| format!("    {}", in_short(segment))));
        }
        for index in &table.damaged {
            lines.push(format!("  index \"{}\" cannot be used", index.definition.name));
            lines.extend(damaged(&index.faults));
        }
    }
    lines
}

fn damaged(faults: &[SegmentFault]) -> Vec<String> {
    faults.iter().map(|fault| format!("    DAMAGED: {fault}")).collect()
}

fn in_short(segment: &SegmentDirectory) -> String {
    let kind = match &segment.kind {
        SegmentKind::Heap => "heap".to_owned(),
        SegmentKind::Index(run) => format!("run of index {}, level {}", run.index_id, run.level),
    };
    let class = match segment.class {
        PageClass::BULK => "bulk pages".to_owned(),
        PageClass::HOT => "hot pages".to_owned(),
        other if other == (PageClass { page_bytes: other.page_bytes, ..PageClass::BULK }) => {
            format!("bulk pages of at most {} bytes", other.page_bytes)
        }
        other => format!("pages of {} bytes", other.page_bytes),
    };
    let sealed = if segment.sealed { "sealed" } else { "open" };
    let bytes: u64 = segment.extents().map(|extent| extent.bytes() as u64).sum();
    format!(
        "{}: {kind}, {class}, {sealed}, commit {}, {} pages, {} rows, {bytes} bytes",
        segment.segment,
        segment.commit,
        segment.pages.len(),
        segment.row_count()
    )
}

/// The segment, and the table that it belongs to.
pub(super) fn find(
    state: &CatalogState,
    segment: SegmentId,
) -> Result<(&Arc<TableState>, &Arc<SegmentDirectory>)> {
    let mut found = state.tables().flat_map(|table| {
        let segments = table.tablets.iter().flat_map(|tablet| tablet.segments());
        segments.map(move |segment| (table, segment))
    });
    found
        .find(|(_, found)| found.segment == segment)
        .ok_or_else(|| absent(format!("{segment} in this database")))
}

pub(super) fn segment(state: &CatalogState, segment: SegmentId) -> Result<Vec<String>> {
    let (table, segment) = find(state, segment)?;
    let mut lines = vec![
        in_short(segment),
        format!(
            "table \"{}\", id {}, schema version {}",
            table.schema.name, segment.table_id, segment.schema_version
        ),
    ];
    for (place, entry) in segment.pages.iter().enumerate() {
        lines.push(format!(
            "page {}: {}, {} rows, VIDs from {}, header checksum {:08x}",
            entry.page.page,
            entry.page.extent,
            entry.page.row_count,
            entry.vid_first,
            entry.page.checksum
        ));
        for extent in &entry.shared {
            lines.push(format!("  shared with earlier versions: {extent}"));
        }
        for page in &entry.overflow {
            let (number, extent) = (page.page, page.extent);
            lines.push(format!(
                "  long values on page {number}: {extent}, checksum {:08x}",
                page.checksum
            ));
        }
        if segment.kind == SegmentKind::Heap {
            let absent_values = AbsentValues::of_table(&table.schema);
            for column in &table.schema.columns {
                let data_type = column.column_type.arrow();
                let absent = absent_values.zone(column.id, &data_type);
                let zones = segment.zone_arrays(column.id, &data_type, absent.as_ref());
                let text = |array| value_text(array, place).ok().flatten();
                let bound = |array| text(array).unwrap_or_else(|| "unknown".to_owned());
                let nulls = zones.null_counts.values().get(place).copied().unwrap_or(0);
                lines.push(format!(
                    "  \"{}\": {} to {}, {nulls} NULLs",
                    column.name,
                    bound(&zones.mins),
                    bound(&zones.maxs)
                ));
            }
        } else {
            for zone in &entry.zones {
                lines.push(format!("  keys {} to {}", hex(&zone.min), hex(&zone.max)));
            }
        }
    }
    Ok(lines)
}

fn hex(bound: &Option<ZoneValue>) -> String {
    let bytes = bound.as_ref().and_then(ZoneValue::bytes);
    bytes.map_or_else(
        || "unknown".to_owned(),
        |bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    )
}

fn table<'a>(state: &'a CatalogState, name: &str) -> Result<&'a Arc<TableState>> {
    state.find_table(name)
}

pub(super) fn map(state: &CatalogState, name: &str) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for tablet in &table(state, name)?.tablets {
        let map = &tablet.version_map;
        lines.push(format!(
            "tablet {}: {} runs, VIDs below {}",
            tablet.id.0,
            map.runs().len(),
            map.vid_end()
        ));
        for run in map.runs() {
            let (from, to) = (run.vid_first, run.vid_end());
            lines.push(format!("  VIDs {from} to {} in {}", to.saturating_sub(1), run.segment));
        }
    }
    Ok(lines)
}

pub(super) fn index(state: &CatalogState, name: &str) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for tablet in &table(state, name)?.tablets {
        let runs: Vec<_> = tablet
            .segments()
            .filter(|segment| segment.kind != SegmentKind::Heap)
            .map(Arc::clone)
            .collect();
        lines.push(format!("tablet {}: {} runs of indexes", tablet.id.0, runs.len()));
        for run in runs {
            lines.push(format!("  {}", in_short(&run)));
            let ends = run.pages.first().zip(run.pages.last());
            let zones = ends.and_then(|(first, last)| first.zones.first().zip(last.zones.first()));
            if let Some((first, last)) = zones {
                lines.push(format!("    keys {} to {}", hex(&first.min), hex(&last.max)));
            }
        }
    }
    Ok(lines)
}

pub(super) async fn devices(database: &Engine) -> Vec<String> {
    let mut lines = Vec::new();
    for device in database.devices() {
        let space = device.space();
        lines.push(format!(
            "device {} \"{}\", {}",
            device.id(),
            device.name(),
            device.entry().address()
        ));
        lines.push(format!(
            "  used by the manifest: {} blocks, the highest below {}",
            space.used_blocks, space.high_water
        ));
        match device.identity().await {
            Err(error) => lines.push(format!("  {error}")),
            Ok(identity) => {
                lines.push(format!("  identity {}", Identity(identity.device)));
                lines.push(format!("  build    {}", identity.build));
                lines.push(format!("  serves   {}", identity.capabilities.join(", ")));
                lines.push(format!(
                    "  media    {} blocks of {} bytes",
                    identity.block_count, identity.block_size
                ));
                lines.push(format!(
                    "  computes with {} cores and {} bytes for fragments",
                    identity.cores, identity.fragment_memory_bytes
                ));
            }
        }
    }
    lines
}
