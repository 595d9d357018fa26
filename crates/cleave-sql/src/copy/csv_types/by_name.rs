//! Text files whose columns are matched by name: the first records of each file in, the columns of all together out.
//!
//! 1. Each file is looked at as one alone is ([`CsvTypes`]): it may have its own delimiter, header and order.
//! 2. Its columns are those of the same name among the ones found so far, or come behind them. Names that differ only
//!    in their case are the same, unless one file has both.
//! 3. What each file shows rules types out, so a column has a type that fits all of them.
//!
//! Files with the same header and form share one [`CsvLayout`], of which there are at most 1000: many files take little
//! memory. Of files beyond the first 16 only some rows are looked at.

use std::collections::BTreeSet;
use std::io::Read;

use cleave_catalog::error::{Error, Result};
use cleave_store::schema::COLUMN_COUNT_MAX;
use cleave_store::{Column, ColumnType};

use super::{Candidates, CsvTypes, DELIMITED_RECORDS, Head, plain_column};
use crate::copy::memory::InputMemory;
use crate::statement::files::CsvCall;

/// Different headers and forms that files may have together.
const LAYOUT_COUNT_MAX: usize = 1000;
/// Files of which all rows of the sample are looked at.
const SAMPLED_FILES: usize = 16;

/// What text files hold together.
#[derive(Debug)]
pub struct CsvUnion {
    /// The columns of all of them.
    pub types: CsvTypes,
    /// The forms in which they have them.
    pub layouts: Vec<CsvLayout>,
    /// For each file, its layout; None: it is empty.
    pub of_file: Vec<Option<usize>>,
}

/// How a text file is read.
#[derive(Debug, Clone)]
pub struct CsvLayout {
    /// Its own columns, in its order.
    pub types: CsvTypes,
    /// For each column of all files, its place in this one; None: it has no such column.
    pub places: Vec<Option<usize>>,
}

/// What is found so far.
#[derive(Default)]
struct Found {
    columns: Vec<(Column, Candidates)>,
    /// Each with the places of its columns among all.
    layouts: Vec<(CsvTypes, Vec<usize>)>,
    of_file: Vec<Option<usize>>,
    sampled_rows: u64,
    first_file: Option<String>,
}

impl CsvUnion {
    /// The columns of files that `call` reads; `inputs` are the names and texts of all of them, of which a sample is
    /// read.
    ///
    /// # Errors
    /// Those of [`CsvTypes::find`], but none for other columns than the first file's; [`Error::InputSchema`] for too
    /// many columns or layouts.
    pub fn find<R: Read>(
        call: &CsvCall,
        inputs: impl IntoIterator<Item = Result<(String, R)>>,
        memory: InputMemory,
    ) -> Result<Self> {
        // A file need not have a column whose type is given.
        let all = CsvCall { types: Vec::new(), ..call.clone() };
        let few = all.sample_rows.map(|rows| rows.min(DELIMITED_RECORDS as u64));
        let few = CsvCall { sample_rows: few, ..all.clone() };
        let mut union = Found::default();
        for (number, input) in inputs.into_iter().enumerate() {
            let (file, input) = input?;
            let own = if number < SAMPLED_FILES { &all } else { &few };
            let mut found = None;
            CsvTypes::look(own, (file.clone(), input), memory, &mut found)?;
            let layout = match found {
                Some((types, candidates)) => Some(union.add(&file, types, &candidates)?),
                None => None,
            };
            union.of_file.push(layout);
            union.first_file.get_or_insert(file);
        }
        union.ended(call)
    }
}

impl CsvLayout {
    /// That of files which all have the columns of `types`.
    #[must_use]
    pub fn of_all(types: CsvTypes) -> Self {
        let places = (0..types.columns.len()).map(Some).collect();
        Self { types, places }
    }
}

impl Found {
    /// Adds what a file shows; returns the number of its layout.
    fn add(&mut self, file: &str, types: CsvTypes, candidates: &[Candidates]) -> Result<usize> {
        self.sampled_rows = self.sampled_rows.saturating_add(types.sampled_rows);
        let is_same = |(known, _): &(CsvTypes, Vec<usize>)| {
            known.options == types.options && known.columns == types.columns
        };
        let number = match self.layouts.iter().position(is_same) {
            Some(number) => number,
            None => self.add_layout(file, types)?,
        };
        let places = self.layouts.get(number).map(|(_, places)| places.as_slice());
        for (place, own) in places.unwrap_or_default().iter().zip(candidates) {
            if let Some((_, all)) = self.columns.get_mut(*place) {
                all.meet(*own);
            }
        }
        Ok(number)
    }

    /// Adds a layout, and the columns that only it has.
    fn add_layout(&mut self, file: &str, types: CsvTypes) -> Result<usize> {
        let wrong = |message: String| Error::InputSchema { file: file.to_owned(), message };
        if self.layouts.len() == LAYOUT_COUNT_MAX {
            return Err(wrong(format!(
                "files that are read together have more than {LAYOUT_COUNT_MAX} different headers or forms by now"
            )));
        }
        let own_names: BTreeSet<&str> =
            types.columns.iter().map(|column| column.name.as_str()).collect();
        let mut places = Vec::with_capacity(types.columns.len());
        for column in &types.columns {
            let is_alike = |known: &str| {
                known.eq_ignore_ascii_case(&column.name) && !own_names.contains(known)
            };
            let exact = self.columns.iter().position(|(known, _)| known.name == column.name);
            let alike = || {
                let mut all = self.columns.iter().enumerate();
                all.find(|(place, (known, _))| is_alike(&known.name) && !places.contains(place))
            };
            let alike = exact.or_else(|| alike().map(|(place, _)| place));
            let place = match alike {
                Some(place) => place,
                None if self.columns.len() == COLUMN_COUNT_MAX => {
                    return Err(wrong(format!(
                        "files that are read together have more than {COLUMN_COUNT_MAX} columns by now"
                    )));
                }
                None => {
                    let place = self.columns.len();
                    let id = u32::try_from(place + 1).unwrap_or(u32::MAX);
                    let column = Column { name: column.name.clone(), ..plain_column(id) };
                    self.columns.push((column, Candidates::all()));
                    place
                }
            };
            places.push(place);
        }
        drop(own_names);
        self.layouts.push((types, places));
        Ok(self.layouts.len() - 1)
    }

    fn ended(self, call: &CsvCall) -> Result<CsvUnion> {
        let Self { columns, layouts, of_file, sampled_rows, first_file } = self;
        let first_file = first_file.unwrap_or_else(|| "read_csv".to_owned());
        let Some((first, _)) = layouts.first() else {
            // All of them are empty.
            let (types, _) = CsvTypes::of_first(call, &Head::of(first_file))?;
            return Ok(CsvUnion { types, layouts: Vec::new(), of_file });
        };
        let column_type = |found: Candidates| match call.all_text {
            true => ColumnType::Text,
            false => found.column_type(),
        };
        let typed = |(column, found): (Column, Candidates)| Column {
            column_type: column_type(found),
            ..column
        };
        let count = columns.len();
        let mut types = CsvTypes {
            options: first.options.clone(),
            columns: columns.into_iter().map(typed).collect(),
            inferred: (0..count).collect(),
            sampled_rows,
            is_named_by_header: false,
        };
        types.give_types(&call.types, &first_file)?;
        let layout = |(mut own, at): (CsvTypes, Vec<usize>)| {
            let mut places = vec![None; count];
            own.inferred.clear();
            own.sampled_rows = sampled_rows;
            for (place, at) in at.into_iter().enumerate() {
                if let Some(of_all) = places.get_mut(at) {
                    *of_all = Some(place);
                }
                if let (Some(column), Some(all)) =
                    (own.columns.get_mut(place), types.columns.get(at))
                {
                    column.column_type = all.column_type;
                }
                if types.inferred.contains(&at) {
                    own.inferred.insert(place);
                }
            }
            CsvLayout { types: own, places }
        };
        let layouts = layouts.into_iter().map(layout).collect();
        Ok(CsvUnion { types, layouts, of_file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::files::{FileCall, FileFormat};

    fn found(texts: &[&str], options: &str) -> Result<CsvUnion> {
        let name = format!("\u{1}file read_csv('f', union_by_name => true{options})");
        let FileFormat::Csv(call) = FileCall::of_relation(&name).unwrap()?.format else {
            panic!("{options}");
        };
        let inputs = texts.iter().map(|text| Ok(("f".to_owned(), text.as_bytes())));
        CsvUnion::find(&call, inputs, InputMemory::default())
    }

    #[test]
    fn columns_of_the_same_name_are_one() {
        let union = found(
            &["id,title\n1,one\n", "", "Title;day;ID\nx;2024-01-31;2.5\n", "id,title\n7,\n"],
            "",
        )
        .unwrap();
        let columns = union.types.columns.iter();
        let columns: Vec<String> =
            columns.map(|own| format!("{} {}", own.name, own.column_type.sql_name())).collect();
        assert_eq!(columns, ["id double precision", "title text", "day date"]);
        assert_eq!(union.of_file, [Some(0), None, Some(1), Some(0)]);
        assert_eq!(union.layouts[0].places, [Some(0), Some(1), None]);
        assert_eq!(union.layouts[1].places, [Some(2), Some(0), Some(1)]);
        assert_eq!(union.layouts[1].types.columns[2].column_type, ColumnType::Double);
        // One file has both.
        let both = found(&["a\n1\n", "A,a\n2,3\n"], "").unwrap();
        let names: Vec<&str> = both.types.columns.iter().map(|own| own.name.as_str()).collect();
        assert_eq!(names, ["a", "A"]);
        assert_eq!(both.layouts[1].places, [Some(1), Some(0)]);
        // A type may be given for a column that only one file has.
        let given = found(&["a\n1\n", "b\n2\n"], ", types => 'b text'").unwrap();
        assert_eq!(given.types.columns[1].column_type, ColumnType::Text);
    }

    #[test]
    fn too_many_columns_or_headers_are_refused() {
        let wide = |from: usize| {
            let names = (from..from + 1000).map(|number| format!("c{number}"));
            format!("{}\n", names.collect::<Vec<_>>().join(","))
        };
        let (first, second) = (wide(0), wide(1000));
        let error = found(&[&first, &second], ", header => true").unwrap_err().to_string();
        assert!(error.contains("more than 1600 columns"), "{error}");
        let headers: Vec<String> = (0..1001).map(|number| format!("c{number}\n1\n")).collect();
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let error = found(&headers, ", header => true").unwrap_err().to_string();
        assert!(error.contains("more than 1000 different headers"), "{error}");
    }
}
