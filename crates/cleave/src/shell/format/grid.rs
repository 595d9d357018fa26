//! Tables: a line for each row, columns below each other.
//!
//! A table that is too wide for its screen is fitted: first the widest columns become narrower, down to
//! [`NARROW`], and their cells are cut. If that is not enough, columns at the end are left out, and a line says so.

use std::io::{self, Write};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::cells::{Cell, dimmed, fitted};
use super::{Layout, for_each_row, is_number};

/// Columns of the screen that a cut cell has at least.
const NARROW: usize = 16;

/// How a table is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// With lines between columns alone, as psql does.
    Plain,
    /// In a frame.
    Box,
    /// As Markdown has it.
    Markdown,
}

/// A table.
pub(super) struct Grid<'a> {
    layout: &'a Layout,
    style: Style,
    titles: Vec<Cell>,
    are_numbers: Vec<bool>,
    rows: Vec<Vec<Cell>>,
    /// Of each column.
    widths: Vec<usize>,
}

impl<'a> Grid<'a> {
    pub(super) fn new(
        layout: &'a Layout,
        style: Style,
        schema: &SchemaRef,
        batches: &[RecordBatch],
    ) -> io::Result<Grid<'a>> {
        let fields = schema.fields();
        let titles: Vec<Cell> =
            fields.iter().map(|field| cell(style, Cell::title(field.name()))).collect();
        let are_numbers = fields.iter().map(|field| is_number(field.data_type())).collect();
        let mut widths: Vec<usize> = titles.iter().map(Cell::width).collect();
        let mut rows = Vec::new();
        for_each_row(batches, layout.row_count_max, |row| {
            let cells: Vec<Cell> =
                row.iter().map(|value| cell(style, Cell::of(value.as_deref(), layout))).collect();
            for (width, cell) in widths.iter_mut().zip(&cells) {
                *width = (*width).max(cell.width());
            }
            rows.push(cells);
            Ok(())
        })?;
        Ok(Grid { layout, style, titles, are_numbers, rows, widths })
    }

    /// The columns of the screen that it needs.
    pub(super) fn width(&self) -> usize {
        total(&self.widths, self.style)
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let widths = match self.layout.width {
            // Lines of one column may as well be broken by the terminal.
            Some(width) if self.style != Style::Markdown && self.titles.len() > 1 => {
                narrowed(&self.widths, self.style, width)
            }
            _ => self.widths.clone(),
        };
        if !widths.is_empty() {
            self.write_rule(out, &widths, ('┌', '┬', '┐'), Style::Box)?;
            self.write_row(out, &widths, &self.titles)?;
            self.write_rule(out, &widths, ('├', '┼', '┤'), self.style)?;
            for row in &self.rows {
                self.write_row(out, &widths, row)?;
            }
            self.write_rule(out, &widths, ('└', '┴', '┘'), Style::Box)?;
        }
        let missing = self.titles.len() - widths.len();
        if missing > 0 {
            let columns = if missing == 1 { "column" } else { "columns" };
            writeln!(out, "… {missing} {columns} not shown; \\x or \\pset columns 0 shows them")?;
        }
        Ok(())
    }

    /// Writes a line between rows, if the table is of this style.
    fn write_rule(
        &self,
        out: &mut dyn Write,
        widths: &[usize],
        (left, middle, right): (char, char, char),
        of: Style,
    ) -> io::Result<()> {
        if of != self.style {
            return Ok(());
        }
        let line = |dash: &str, between: &str| {
            let dashes: Vec<String> = widths.iter().map(|width| dash.repeat(width + 2)).collect();
            dashes.join(between)
        };
        match self.style {
            Style::Plain => writeln!(out, "{}", line("-", "+")),
            Style::Box => writeln!(out, "{left}{}{right}", line("─", &middle.to_string())),
            Style::Markdown => {
                let columns = widths.iter().zip(&self.are_numbers);
                let dashes = columns.map(|(width, is_number)| {
                    let end = if *is_number { ":" } else { "-" };
                    format!(" {}{end} ", "-".repeat(width.saturating_sub(1).max(2)))
                });
                writeln!(out, "|{}|", dashes.collect::<Vec<_>>().join("|"))
            }
        }
    }

    /// Writes a row, which has as many lines as its highest cell.
    fn write_row(&self, out: &mut dyn Write, widths: &[usize], cells: &[Cell]) -> io::Result<()> {
        let (edge, goes_on) = match self.style {
            Style::Plain => ("|", '+'),
            Style::Box => ("│", '↵'),
            Style::Markdown => ("|", ' '),
        };
        let height = cells.iter().map(|cell| cell.lines.len()).max().unwrap_or(1);
        for index in 0..height {
            let columns = cells.iter().zip(widths).zip(&self.are_numbers);
            let parts: Vec<String> = columns
                .map(|((cell, width), is_right)| {
                    let line = cell.lines.get(index).map_or("", String::as_str);
                    let mut text = fitted(line, *width, *is_right);
                    if cell.is_null {
                        text = dimmed(&text, self.layout.has_colour);
                    }
                    let end = if index + 1 < cell.lines.len() { goes_on } else { ' ' };
                    format!(" {text}{end}")
                })
                .collect();
            let line = parts.join(edge);
            match self.style {
                Style::Plain => writeln!(out, "{}", line.trim_end())?,
                Style::Box | Style::Markdown => writeln!(out, "{edge}{line}{edge}")?,
            }
        }
        Ok(())
    }
}

/// A cell as the style has it: Markdown knows no rows of several lines.
fn cell(style: Style, cell: Cell) -> Cell {
    if style != Style::Markdown {
        return cell;
    }
    let line = cell.lines.join("<br>").replace('|', "\\|");
    Cell { lines: vec![line], is_null: cell.is_null }
}

/// The columns of the screen that columns of these widths take.
fn total(widths: &[usize], style: Style) -> usize {
    let frame = match style {
        Style::Plain => 0,
        Style::Box | Style::Markdown => 2,
    };
    let between = widths.len().saturating_sub(1);
    widths.iter().map(|width| width + 2).sum::<usize>() + between + frame
}

/// Widths of the columns that are shown, within `screen` columns.
fn narrowed(widths: &[usize], style: Style, screen: usize) -> Vec<usize> {
    let within = |shown: &[usize], width_max: usize| -> Vec<usize> {
        shown.iter().map(|width| *width.min(&width_max)).collect()
    };
    let fits = |widths: &[usize]| total(widths, style) <= screen;
    if fits(widths) {
        return widths.to_vec();
    }
    let shown = (1..=widths.len()).rev().find_map(|count| {
        let shown = widths.get(..count)?;
        fits(&within(shown, NARROW)).then_some(shown)
    });
    // One column is shown on any screen.
    let shown = shown.unwrap_or(widths.get(..1).unwrap_or_default());
    let width_max = (NARROW..=screen).rev().find(|width_max| fits(&within(shown, *width_max)));
    within(shown, width_max.unwrap_or(NARROW))
}
