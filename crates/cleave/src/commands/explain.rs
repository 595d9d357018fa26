//! `cleave explain`: the plan of a statement, as text, as JSON, or drawn with its link.
//!
//! The database opens here, or a server answers: one that `--db` has a URL of, or the server or shell that has the
//! database open.

use std::io::Write;
use std::path::PathBuf;

use arrow::array::Array;
use arrow::record_batch::RecordBatch;
use arrow::util::display::array_value_to_string;
use clap::Args;
use cleave_client::{Address, Client, ClientError};
use cleave_host::statement::parse_script;
use cleave_host::{Error, Outcome, address_file};
use cleave_pictures::plan_svg;

use crate::arguments::Place;
use crate::failure::Failure;
use crate::open;
use crate::picture::Picture;

/// `cleave explain …`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ExplainOptions {
    /// The statement
    #[arg(value_name = "SQL")]
    sql: String,
    /// Run the statement, and show what was measured
    #[arg(long)]
    analyze: bool,
    /// Print JSON in the shape of PostgreSQL's
    #[arg(long, conflicts_with = "svg")]
    json: bool,
    /// Draw the plan into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Runs `cleave explain …`.
pub(crate) async fn run(options: &ExplainOptions, place: &Place) -> Result<(), Failure> {
    let format = if options.json || options.svg.is_some() { "JSON" } else { "TEXT" };
    let analyze = if options.analyze { "ANALYZE, " } else { "" };
    let explain = format!("EXPLAIN ({analyze}FORMAT {format}) {}", options.sql);
    if parse_script(&options.sql).map_err(Failure::Sql)?.len() != 1 {
        // A second one would run.
        return Err(Failure::Sql(Error::unsupported(
            "a plan of more than one statement, or of none",
        )));
    }
    // The statement may change rows, so a file that cannot be written is found before it runs.
    let picture = options.svg.as_deref().map(Picture::create).transpose()?;
    let directory = open::directory(place)?;
    let client = match directory.to_str().filter(|name| Address::is_url(name)) {
        Some(url) => {
            let address = Address::from_url(url).map_err(failed)?;
            Some(Box::pin(Client::connect_to(address)).await.map_err(failed)?)
        }
        None => match address_file::find(directory) {
            Some(found) => match Box::pin(Client::connect_to(open::address_of(&found))).await {
                Err(error) if found.is_ending(error.sqlstate()) => None,
                connected => Some(connected.map_err(failed)?),
            },
            None => None,
        },
    };
    let lines = match client {
        Some(client) => Box::pin(by_server(client, place, &explain)).await?,
        None => Box::pin(by_database(options, place, &explain)).await?,
    };
    let Some(picture) = picture else {
        let mut out = std::io::stdout().lock();
        return Ok(lines.iter().try_for_each(|line| writeln!(out, "{line}"))?);
    };
    let drawn = plan_svg(&lines.concat()).map_err(|error| Failure::Usage(error.to_string()))?;
    picture.write(&drawn)
}

async fn by_database(
    options: &ExplainOptions,
    place: &Place,
    explain: &str,
) -> Result<Vec<String>, Failure> {
    let (database, mut session) = open::open(place, open::Create::Never).await?;
    let outcomes = session.run(explain).await.map_err(refused)?;
    if options.analyze {
        // The statement may have changed rows.
        database.checkpoint().await.map_err(Failure::Sql)?;
    }
    let batches = outcomes.iter().map(|outcome| match outcome {
        Outcome::Rows { batches, .. } => batches.as_slice(),
        Outcome::Done { .. } => &[],
    });
    Ok(batches.flat_map(lines_of).collect())
}

async fn by_server(
    mut client: Client,
    place: &Place,
    explain: &str,
) -> Result<Vec<String>, Failure> {
    for (name, value) in &place.settings {
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "_.".contains(letter);
        if !name.chars().all(is_of_name) {
            return Err(Failure::Usage(format!("--set: \"{name}\" is no name of a setting")));
        }
        let set = format!("SET {name} = '{}'", value.replace('\'', "''"));
        client.run(&set, &[]).await.map_err(failed)?.collect().await.map_err(failed)?;
    }
    let mut answer = client.run(explain, &[]).await.map_err(failed)?;
    Ok(lines_of(&answer.collect().await.map_err(failed)?))
}

/// The first column of all rows.
fn lines_of(batches: &[RecordBatch]) -> Vec<String> {
    let columns = batches.iter().filter_map(|batch| batch.columns().first());
    let lines = columns.flat_map(|column| {
        (0..column.len()).map(move |row| array_value_to_string(column, row).unwrap_or_default())
    });
    lines.collect()
}

/// An error of the statement, whose position would be that in EXPLAIN.
fn refused(error: Error) -> Failure {
    let message = error.to_string();
    let position = error.position().map(|position| format!("{position}: "));
    let message = position.and_then(|position| message.strip_prefix(&position)).unwrap_or(&message);
    Failure::Workload(format!("ERROR {}: {message}", error.sqlstate()))
}

fn failed(error: ClientError) -> Failure {
    match error {
        ClientError::Usage(message) => Failure::Usage(message),
        ClientError::CopyWithoutStream(_) => Failure::Usage(error.to_string()),
        other => Failure::Workload(other.to_string()),
    }
}
