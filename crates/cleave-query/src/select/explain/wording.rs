//! Operators of physical plans in plain words, and by the names that PostgreSQL's JSON has for them. An operator in,
//! its [`Words`] out.
//!
//! DataFusion's operators, and ours, have rules here. One without a rule has DataFusion's name without `Exec`, and what
//! DataFusion shows of it. What only moves rows between threads tells a person nothing and
//! [is hidden](Words::is_hidden) from plain text.
//!
//! Sources: PostgreSQL's manual, "Using EXPLAIN", and the node types of its `explain.c`.

mod aggregates;
mod joins;
#[cfg(test)]
mod tests;
mod windows;

use std::sync::Arc;

use cleave_fragment::{
    BroadcastExec, ChangePagesExec, CollectKeysExec, FetchColumnsExec, InsertPagesExec,
    LockRowsExec, PeerRowsExec, RecursionExec, TableScanExec, WorkingTableExec,
};
use datafusion::arrow::datatypes::Schema;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::memory::LazyMemoryExec;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::partial_sort::PartialSortExec;
use datafusion::physical_plan::sorts::partitioned_topk::PartitionedTopKExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::streaming::StreamingTableExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{ExecutionPlan, displayable};

use super::below_cuts::Sources;
use super::expression_text::{column_text, is_internal, listed, sort_keys, sql, without_ordinals};
use crate::cooperative::exchanges::ExchangeExec;
use crate::cooperative::fragment_exec::FragmentExec;
use crate::file_tables::FileScanExec;
use crate::outside_tables::OutsideScanExec;
use crate::select::reuse::ReusedExec;
use crate::select::with_scan_exec::WithScanExec;

/// Columns and expressions of a list that are shown.
const COLUMNS_MAX: usize = 8;
/// Characters of a text of DataFusion's that are shown.
const TEXT_CHARACTERS_MAX: usize = 200;

/// DataFusion's operators that only move rows between threads, or ask something of others.
const UNTOLD: [&str; 7] = [
    "AsyncFuncExec",
    "BufferExec",
    "CoalesceBatchesExec",
    "CooperativeExec",
    "OneRowExec",
    "OutputRequirementExec",
    "RepartitionExec",
];

/// Our operators that build and merge pages of indexes and tables, or stand for rows of a statement: no query has them,
/// and a plan that does is read all the same.
const OF_OTHER_WORK: [(&str, &str, &str); 6] = [
    ("GivenExec", "Materialize", "Rows given once"),
    ("MergeRunsExec", "Index Scan", "Merge of index runs"),
    ("SlotExec", "Values Scan", "Rows of the statement"),
    ("SortKeysExec", "Sort", "Sort of index entries"),
    ("WriteRowsExec", "ModifyTable", "Write rows as pages"),
    ("WriteRunExec", "ModifyTable", "Write an index run"),
];

/// What EXPLAIN says of an operator.
#[derive(Debug, Clone, Default)]
pub(super) struct Words {
    /// What it is, and over what: `Final aggregate by kind_id`.
    pub(super) title: String,
    /// What it does: `count(*)`; may be empty.
    pub(super) detail: String,
    /// It tells a person nothing.
    pub(super) is_hidden: bool,
    /// PostgreSQL's name of such a node.
    pub(super) node_type: String,
    /// What PostgreSQL's JSON has for such a node besides.
    pub(super) properties: Vec<(&'static str, Property)>,
}

/// A value in JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Property {
    Text(String),
    Texts(Vec<String>),
    Count(usize),
}

impl Words {
    fn new(node_type: &str, title: impl Into<String>) -> Self {
        Self { title: title.into(), node_type: node_type.to_owned(), ..Self::default() }
    }

    fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    fn with_text(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.properties.push((key, Property::Text(value.into())));
        self
    }

    fn with_texts(mut self, key: &'static str, values: Vec<String>) -> Self {
        if !values.is_empty() {
            self.properties.push((key, Property::Texts(values)));
        }
        self
    }

    fn with_count(mut self, key: &'static str, value: Option<usize>) -> Self {
        self.properties.extend(value.map(|value| (key, Property::Count(value))));
        self
    }

    fn hidden(mut self) -> Self {
        self.is_hidden = true;
        self
    }

    /// Those of a statement, or of a part of one, that has no operator.
    pub(super) fn of_statement(text: &str) -> Self {
        let operation = match text.split(' ').next() {
            Some("Insert") => Some("Insert"),
            Some("Update") => Some("Update"),
            Some("Delete") => Some("Delete"),
            _ => None,
        };
        if let Some(operation) = operation {
            return Self::new("ModifyTable", text).with_text("Operation", operation);
        }
        if let Some(query) = text.strip_prefix("WITH ") {
            let name = query.split(',').next().unwrap_or(query);
            return Self::new("CTE", text).with_text("Subplan Name", format!("CTE {name}"));
        }
        let node_type = if text.contains("look-up") { "Index Scan" } else { "Result" };
        Self::new(node_type, text)
    }

    /// The same of the texts with other names in them.
    pub(super) fn renamed(self, rename: &dyn Fn(String) -> String) -> Self {
        let renamed = |property| match property {
            Property::Text(text) => Property::Text(rename(text)),
            Property::Texts(texts) => Property::Texts(texts.into_iter().map(rename).collect()),
            Property::Count(count) => Property::Count(count),
        };
        let properties = self.properties.into_iter();
        Self {
            title: rename(self.title),
            detail: rename(self.detail),
            properties: properties.map(|(key, property)| (key, renamed(property))).collect(),
            ..self
        }
    }

    /// All of it in one line.
    pub(super) fn line(&self) -> String {
        match self.detail.is_empty() {
            true => self.title.clone(),
            false => format!("{}: {}", self.title, self.detail),
        }
    }
}

/// What EXPLAIN says of `plan`, above whose leaves `sources` lie.
pub(super) fn words(plan: &Arc<dyn ExecutionPlan>, sources: &Sources) -> Words {
    let found = of_scan(plan)
        .or_else(|| joins::words(plan, sources))
        .or_else(|| aggregates::words(plan))
        .or_else(|| windows::words(plan))
        .or_else(|| of_order(plan))
        .or_else(|| of_rows(plan))
        .or_else(|| of_set(plan))
        .or_else(|| of_change(plan))
        .or_else(|| of_cut(plan));
    found.unwrap_or_else(|| without_rule(plan))
}

/// Leaves.
fn of_scan(plan: &Arc<dyn ExecutionPlan>) -> Option<Words> {
    if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
        return Some(of_table(scan));
    }
    if let Some(scan) = plan.downcast_ref::<WithScanExec>() {
        let name = scan.rows().name();
        let name = name.strip_prefix("WITH ").unwrap_or(name);
        let words = Words::new("CTE Scan", format!("Scan of WITH {name}"));
        return Some(words.with_text("CTE Name", name));
    }
    let working = plan.downcast_ref::<WorkingTableExec>().map(WorkingTableExec::query_name);
    // DataFusion's own has the place of ours until a round begins.
    if let Some(name) = working.or_else(|| Some(plan.downcast_ref::<WorkTableExec>()?.name())) {
        let words = Words::new("WorkTable Scan", format!("Rows of the last round of {name}"));
        return Some(words.with_text("CTE Name", name));
    }
    if plan.is::<BroadcastExec>() {
        return Some(Words::new("Materialize", "Rows sent by the host"));
    }
    if plan.is::<PeerRowsExec>() {
        return Some(Words::new("Materialize", "Rows sent by other devices"));
    }
    if plan.is::<PlaceholderRowExec>() {
        return Some(Words::new("Result", "One row"));
    }
    if plan.is::<EmptyExec>() {
        return Some(Words::new("Result", "No rows"));
    }
    if plan.is::<ReusedExec>() {
        return Some(Words::new("Result", "Held result").with_detail(shown_detail(plan)));
    }
    of_outside(plan)
}

/// Leaves whose rows do not come from tables of the database.
fn of_outside(plan: &Arc<dyn ExecutionPlan>) -> Option<Words> {
    let columns = || match columns_of(&plan.schema()) {
        names if names.is_empty() => "no columns".to_owned(),
        names => format!("columns {}", listed(&names, COLUMNS_MAX)),
    };
    if let Some(scan) = plan.downcast_ref::<FileScanExec>() {
        let mut detail = columns();
        if let Some((read, all)) = scan.row_groups() {
            detail = format!("{detail}, row groups {read} of {all}");
        }
        let detail = format!("{detail}{}", only_rows(scan.conditions()));
        let call = shortened(scan.call().to_owned());
        let words = Words::new("Foreign Scan", format!("Scan of {call}"));
        return Some(words.with_detail(detail).with_texts("Output", columns_of(&plan.schema())));
    }
    if let Some(scan) = plan.downcast_ref::<StreamingTableExec>() {
        let first = scan.limit().map(|count| format!(", first {count}")).unwrap_or_default();
        let words = Words::new("Foreign Scan", "Scan of a table of the caller");
        let words = words.with_detail(format!("{}{first}", columns()));
        return Some(words.with_texts("Output", columns_of(&plan.schema())));
    }
    if let Some(scan) = plan.downcast_ref::<OutsideScanExec>() {
        let words = Words::new("Foreign Scan", "Scan of a table of the caller");
        let words = words.with_detail(format!("{}{}", columns(), only_rows(scan.conditions())));
        return Some(words.with_texts("Output", columns_of(&plan.schema())));
    }
    let series = plan.downcast_ref::<LazyMemoryExec>()?;
    let text = series.generators().first().map(|one| one.read().to_string()).unwrap_or_default();
    let (name, values) = text.split_once(": ").unwrap_or((text.as_str(), ""));
    let values = values.split(", ").filter(|value| !value.starts_with("batch_size="));
    let values: Vec<String> = values.map(|value| value.replacen('=', " ", 1)).collect();
    let words = Words::new("Function Scan", format!("Rows of {name}"));
    Some(words.with_detail(values.join(", ")).with_text("Function Name", name))
}

/// By what a scan leaves rows out.
fn only_rows(conditions: &[Arc<dyn PhysicalExpr>]) -> String {
    let conditions: Vec<String> = conditions.iter().map(sql).collect();
    match conditions.is_empty() {
        true => String::new(),
        false => format!(", only rows with {}", listed(&conditions, COLUMNS_MAX)),
    }
}

fn of_table(scan: &TableScanExec) -> Words {
    let filters = scan.dynamic_filters().iter().map(sql);
    let filters: Vec<String> = filters.filter(|filter| filter != "true").collect();
    let scan = scan.scan();
    let names = columns_of(&scan.schema());
    let columns = match names.is_empty() {
        true => "no columns".to_owned(),
        false => format!("columns {}", listed(&names, COLUMNS_MAX)),
    };
    let predicate = scan.predicate.as_ref().map(sql);
    let mut parts = vec![columns];
    parts.extend(predicate.as_ref().map(|predicate| format!("filter {predicate}")));
    let from_joins = (!filters.is_empty()).then(|| filters.join(" AND "));
    parts.extend(from_joins.as_ref().map(|filters| format!("filter from above {filters}")));
    parts.extend(scan.fetch.map(|count| format!("first {count}")));
    let words = Words::new("Seq Scan", format!("Scan of {}", scan.table))
        .with_detail(parts.join(", "))
        .with_text("Relation Name", scan.table.as_str())
        .with_text("Alias", scan.table.as_str())
        .with_texts("Output", names);
    let words = predicate.into_iter().fold(words, |words, text| words.with_text("Filter", text));
    from_joins.into_iter().fold(words, |words, text| words.with_text("Filter From Above", text))
}

/// Sorts and limits.
fn of_order(plan: &Arc<dyn ExecutionPlan>) -> Option<Words> {
    let sorted = |title: &str, keys: Vec<String>, fetch: Option<usize>| {
        let first = fetch.map(|count| format!(", first {count}")).unwrap_or_default();
        Words::new("Sort", format!("{title} {}{first}", listed(&keys, COLUMNS_MAX)))
            .with_texts("Sort Key", keys)
            .with_count("First Rows", fetch)
    };
    if let Some(sort) = plan.downcast_ref::<SortExec>() {
        return Some(sorted("Sort by", sort_keys(sort.expr()), sort.fetch()));
    }
    if let Some(sort) = plan.downcast_ref::<PartialSortExec>() {
        let words = sorted("Incremental sort by", sort_keys(sort.expr()), sort.fetch());
        return Some(Words { node_type: "Incremental Sort".to_owned(), ..words });
    }
    if let Some(sort) = plan.downcast_ref::<PartitionedTopKExec>() {
        return Some(sorted("Sort of each group by", sort_keys(sort.expr()), Some(sort.fetch())));
    }
    if let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>() {
        let words = sorted("Merge of sorted rows by", sort_keys(merge.expr()), merge.fetch());
        // One sort for each thread is still one sort.
        let is_hidden = merge.input().is::<SortExec>();
        return Some(Words { node_type: "Gather Merge".to_owned(), is_hidden, ..words });
    }
    let limit = |fetch: Option<usize>, skip: usize| {
        let title = match (fetch, skip) {
            (Some(fetch), 0) => format!("Limit {fetch}"),
            (Some(fetch), skip) => format!("Limit {fetch}, offset {skip}"),
            (None, skip) => format!("Offset {skip}"),
        };
        Words::new("Limit", title)
    };
    if let Some(own) = plan.downcast_ref::<GlobalLimitExec>() {
        return Some(limit(own.fetch(), own.skip()));
    }
    if let Some(own) = plan.downcast_ref::<LocalLimitExec>() {
        return Some(limit(Some(own.fetch()), 0));
    }
    if let Some(merge) = plan.downcast_ref::<CoalescePartitionsExec>() {
        return Some(match merge.fetch() {
            Some(fetch) => limit(Some(fetch), 0),
            None => Words::new("Gather", "Merge of threads").hidden(),
        });
    }
    None
}

/// What changes rows one by one.
fn of_rows(plan: &Arc<dyn ExecutionPlan>) -> Option<Words> {
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let condition = sql(filter.predicate());
        let first = filter.fetch().map(|count| format!(", first {count}")).unwrap_or_default();
        let words = Words::new("Result", "Filter").with_detail(format!("{condition}{first}"));
        return Some(words.with_text("Filter", condition));
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let is_trivial = projection.expr().iter().all(|column| column.expr.is::<Column>());
        // Such as the place of a row that is changed.
        let is_hidden = |expr: &Arc<dyn PhysicalExpr>| {
            expr.downcast_ref::<Column>().is_some_and(|column| is_internal(column.name()))
        };
        let told = projection
            .expr()
            .iter()
            .filter(|column| !(is_internal(&column.alias) && is_hidden(&column.expr)));
        let columns = told.map(|column| {
            let (text, name) = (sql(&column.expr), column_text(&column.alias));
            let is_named = name != text && !is_internal(&column.alias) && !is_expression(&name);
            if is_named { format!("{text} AS {name}") } else { text }
        });
        let columns: Vec<String> = columns.collect();
        let words = Words::new("Result", "Projection").with_detail(listed(&columns, COLUMNS_MAX));
        let words = words.with_texts("Output", columns);
        return Some(if is_trivial { words.hidden() } else { words });
    }
    if let Some(fetch) = plan.downcast_ref::<FetchColumnsExec>() {
        let fetched = fetch.fetched();
        let names = columns_of(&fetched.columns.schema);
        let words =
            Words::new("Fetch Columns", format!("Fetch of more columns of {}", fetched.table));
        let words = words.with_detail(listed(&names, COLUMNS_MAX)).with_texts("Output", names);
        return Some(words.with_text("Relation Name", fetched.table.as_str()));
    }
    if plan.is::<CollectKeysExec>() {
        let words = Words::new("Collect Keys", "Collect keys, to filter scans");
        return Some(words.with_detail(shown_detail(plan)));
    }
    let unnest = plan.downcast_ref::<UnnestExec>()?;
    let schema = unnest.input().schema();
    let lists = unnest.list_column_indices().iter().map(|list| list.index_in_input_schema);
    let places = lists.chain(unnest.struct_column_indices().iter().copied());
    let names = places.filter_map(|place| Some(schema.fields().get(place)?.name().as_str()));
    let names: Vec<String> = names.filter(|name| !is_internal(name)).map(column_text).collect();
    Some(Words::new("ProjectSet", "Unnest").with_detail(listed(&names, COLUMNS_MAX)))
}

/// Whether a name is the text of an expression, which DataFusion gives to what has none.
fn is_expression(name: &str) -> bool {
    name.contains(['(', ' ', '.'])
}

/// Several inputs that are no join.
fn of_set(plan: &Arc<dyn ExecutionPlan>) -> Option<Words> {
    if plan.is::<UnionExec>() || plan.is::<InterleaveExec>() {
        return Some(Words::new("Append", "Union"));
    }
    if let Some(recursion) = plan.downcast_ref::<RecursionExec>() {
        let union = if recursion.is_distinct() { "UNION" } else { "UNION ALL" };
        let words = Words::new("Recursive Union", format!("Recursion {}", recursion.query_name()));
        return Some(words.with_detail(union));
    }
    None
}

/// What changes pages.
fn of_change(plan: &Arc<dyn ExecutionPlan>) -> Option<Words> {
    if let Some(insert) = plan.downcast_ref::<InsertPagesExec>() {
        let inserted = insert.inserted();
        let (title, operation) = match inserted.replaces {
            true => ("Replace pages", "Update"),
            false => ("Insert into pages", "Insert"),
        };
        let names = columns_of(&inserted.columns.schema);
        let words = Words::new("ModifyTable", title).with_detail(listed(&names, COLUMNS_MAX));
        return Some(words.with_text("Operation", operation));
    }
    if let Some(change) = plan.downcast_ref::<ChangePagesExec>() {
        let names = columns_of(&change.changed().columns.schema);
        let (title, operation) = match names.is_empty() {
            true => ("Delete rows of pages", "Delete"),
            false => ("Change rows of pages", "Update"),
        };
        let words = Words::new("ModifyTable", title).with_detail(listed(&names, COLUMNS_MAX));
        return Some(words.with_text("Operation", operation));
    }
    let lock = plan.downcast_ref::<LockRowsExec>()?;
    let table = lock.to_lock().table.as_str();
    Some(Words::new("LockRows", format!("Lock rows of {table}")).with_text("Relation Name", table))
}

/// What stands above a cut.
fn of_cut(plan: &Arc<dyn ExecutionPlan>) -> Option<Words> {
    let title = match (plan.is::<FragmentExec>(), plan.is::<ExchangeExec>()) {
        (true, _) => "Fragment",
        (false, true) if plan.name() == "GatherExec" => "Gather at nodes",
        (false, true) => "Exchange",
        (false, false) => return None,
    };
    let fragment = plan.downcast_ref::<FragmentExec>();
    let has_several = fragment.is_some_and(|own| own.devices_and_homes().contains(", "));
    let mut detail = shown_detail(plan);
    for (named, words) in [
        // The host runs all of it.
        ("device=, on the host=", "on the host "),
        ("device=", if has_several { "devices " } else { "device " }),
        ("devices=", "devices "),
        ("node=", "node "),
        ("on the host=", "on the host "),
        ("fetch=", "first "),
    ] {
        detail = detail.replace(named, words);
    }
    Some(Words::new("Gather", title).with_detail(detail))
}

fn without_rule(plan: &Arc<dyn ExecutionPlan>) -> Words {
    let name = plan.name();
    let title = name.strip_suffix("Exec").unwrap_or(name);
    let detail = shown_detail(plan);
    let words = match name {
        "DataSourceExec" if detail.starts_with("partitions=") => {
            return Words::new("Values Scan", "Rows in memory");
        }
        "DataSourceExec" => Words::new("Foreign Scan", "Scan of files"),
        "ScalarSubqueryExec" => return Words::new("Result", "With the values of subqueries"),
        _ => match OF_OTHER_WORK.iter().find(|(known, ..)| *known == name) {
            Some((_, node_type, title)) => Words::new(node_type, *title),
            None => Words::new(title, title),
        },
    };
    let words = words.with_detail(detail);
    if UNTOLD.contains(&name) { words.hidden() } else { words }
}

/// What DataFusion, or the operator itself, shows of `plan` behind its name.
fn shown_detail(plan: &Arc<dyn ExecutionPlan>) -> String {
    let text = displayable(plan.as_ref()).one_line().to_string();
    let text = text.trim_end();
    let detail = text.split_once(": ").map_or("", |(_, detail)| detail);
    shortened(without_ordinals(detail))
}

fn shortened(text: String) -> String {
    match text.char_indices().nth(TEXT_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// The columns of `schema` that have a name of a user.
fn columns_of(schema: &Schema) -> Vec<String> {
    let names = schema.fields().iter().map(|field| field.name().as_str());
    names.filter(|name| !is_internal(name)).map(column_text).collect()
}
