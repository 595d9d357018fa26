//! `cleave device profile`: what host, device and link can do in a second, measured on first use.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray};
use arrow::datatypes::{Field, Schema};
use clap::Args;
use cleave_host::device::profile::{
    Accelerator, Figure, LinkProfile, PUBLISHED, Profile, SideProfile,
};

use crate::arguments::Place;
use crate::failure::Failure;
use crate::open::{self, Create};
use crate::shell::format::{Format, Layout, write_rows};

#[derive(Debug, Clone, Args)]
pub(super) struct ProfileOptions {
    /// The device's name in this database, or that of published hardware
    name: String,
    /// Show published figures of cosmos-plus, alveo-u280 or smartssd; nothing is measured
    #[arg(long, conflicts_with = "again")]
    published: bool,
    /// Measure again, even if it was measured before
    #[arg(long)]
    again: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `cleave device profile …`.
pub(super) async fn run(options: &ProfileOptions, place: &Place) -> Result<(), Failure> {
    let profile =
        if options.published { published(&options.name)? } else { known(options, place).await? };
    let format = if options.json { Format::Json } else { Format::Table };
    let rows = table(&lines(&profile), options.json)?;
    write_rows(&mut std::io::stdout(), &Layout::plain(format), &rows.schema(), &[rows])?;
    Ok(())
}

async fn known(options: &ProfileOptions, place: &Place) -> Result<Arc<Profile>, Failure> {
    let (database, _session) = open::open(place, Create::Never).await?;
    let device = database.device_named(&options.name).map_err(Failure::Open)?;
    database.profile(device.id(), options.again).await.map_err(Failure::Open)
}

fn published(name: &str) -> Result<Arc<Profile>, Failure> {
    let names = || PUBLISHED.map(|accelerator| accelerator.name).join(", ");
    let unknown =
        || Failure::Usage(format!("nothing is published here of {name}, but of {}", names()));
    Accelerator::named(name).map(|accelerator| Arc::new(accelerator.profile())).ok_or_else(unknown)
}

/// One figure of a side or the link.
struct Line {
    side: &'static str,
    figure: String,
    /// None if not measured.
    value: Option<f64>,
    unit: &'static str,
    origin: &'static str,
}

fn lines(profile: &Profile) -> Vec<Line> {
    let mut lines = side_lines("host", &profile.host);
    lines.extend(side_lines("device", &profile.device));
    lines.extend(link_lines(&profile.link));
    lines
}

fn side_lines(side: &'static str, profile: &SideProfile) -> Vec<Line> {
    let origin = profile.origin.name();
    let line = |figure: &str, value, unit| {
        let figure = figure.to_owned();
        Line { side, figure, value, unit, origin }
    };
    let mut lines = vec![
        line("cores", Some(profile.cores.into()), "cores"),
        line("cores, together", Some(profile.cores_together), "cores"),
        line("memory", Some(profile.memory_bytes as f64), "bytes"),
    ];
    lines.extend(Figure::ALL.into_iter().filter_map(|figure| {
        Some(line(figure.name(), Some(profile.figure(figure)?), figure.unit()))
    }));
    lines.extend(profile.remarks.iter().map(|remark| line(remark, None, "")));
    lines
}

fn link_lines(link: &LinkProfile) -> Vec<Line> {
    let origin = link.origin.name();
    let line = |figure: String, value, unit| Line { side: "link", figure, value, unit, origin };
    if link.is_embedded {
        return vec![line("none: the device lives in this process".to_owned(), None, "")];
    }
    let mut lines = vec![
        line("round trip".to_owned(), Some(link.round_trip_s), "s"),
        line("rate".to_owned(), Some(link.bytes_per_second), "bytes/s"),
    ];
    let of_size = |(bytes, seconds): &(u64, f64)| {
        line(format!("round trip, {bytes} bytes"), Some(*seconds), "s")
    };
    lines.extend(link.handshakes.iter().map(of_size));
    lines
}

/// As rows: numbers if a program reads them, and short texts for people.
fn table(lines: &[Line], for_program: bool) -> Result<RecordBatch, Failure> {
    let texts = |text: fn(&Line) -> String| -> ArrayRef {
        Arc::new(lines.iter().map(|line| Some(text(line))).collect::<StringArray>())
    };
    let values: ArrayRef = if for_program {
        Arc::new(lines.iter().map(|line| line.value).collect::<Float64Array>())
    } else {
        let text = |line: &Line| line.value.map_or_else(|| "-".to_owned(), short);
        Arc::new(lines.iter().map(|line| Some(text(line))).collect::<StringArray>())
    };
    let columns = vec![
        ("side", texts(|line| line.side.to_owned())),
        ("figure", texts(|line| line.figure.clone())),
        ("value", values),
        ("unit", texts(|line| line.unit.to_owned())),
        ("origin", texts(|line| line.origin.to_owned())),
    ];
    let field = |(name, column): &(&str, ArrayRef)| {
        Field::new(*name, column.data_type().clone(), *name == "value")
    };
    let fields: Vec<Field> = columns.iter().map(field).collect();
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
        .map_err(|error| Failure::Output(std::io::Error::other(error)))
}

/// Three digits, and an SI prefix.
fn short(value: f64) -> String {
    let prefixes = [(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ")];
    let (scale, prefix) =
        prefixes.into_iter().find(|(scale, _)| value >= *scale).unwrap_or((1.0, ""));
    let scaled = value / scale;
    let digits = if scaled >= 100.0 || value == 0.0 {
        0
    } else if scaled >= 10.0 {
        1
    } else {
        2
    };
    format!("{scaled:.digits$} {prefix}").trim_end().to_owned()
}

#[cfg(test)]
mod tests;
