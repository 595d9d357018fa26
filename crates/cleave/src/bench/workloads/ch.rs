//! CH-benCHmark's analytic half: the queries of TPC-H over the tables of TPC-C, run while its transactions change them.
//!
//! An analyst runs one query after the other; each starts with a different one. Dates are those of the loaded rows, and
//! of the orders that follow.
//!
//! Source: Cole et al., "The mixed workload CH-benCHmark", DBTest 2011.

use super::{Turn, Workload, unexpected};
use crate::bench::client::{Client, ClientError};
use crate::generate::random::Draw;

/// The queries, each after a line with its number.
const QUERIES: &str = include_str!("ch.sql");

/// The analysts' workload, over TPC-C's tables.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Analytics;

/// The queries in order.
fn queries() -> impl Iterator<Item = &'static str> {
    QUERIES.split(';').map(str::trim).filter(|query| !query.is_empty())
}

impl Workload for Analytics {
    fn operations(&self) -> &'static [&'static str] {
        &[
            "Q1", "Q2", "Q3", "Q4", "Q5", "Q6", "Q7", "Q8", "Q9", "Q10", "Q11", "Q12", "Q13",
            "Q14", "Q15", "Q16", "Q17", "Q18", "Q19", "Q20", "Q21", "Q22",
        ]
    }

    fn load(&self, _: &mut dyn Client, _: u64) -> Result<(), ClientError> {
        Ok(())
    }

    fn prepare(&self, _: &mut dyn Client) -> Result<(), ClientError> {
        Ok(())
    }

    fn choose(&self, _: &mut Draw, (who, number): Turn) -> usize {
        usize::try_from((who * 5 + number) % 22).unwrap_or(0)
    }

    fn perform(
        &self,
        operation: usize,
        client: &mut dyn Client,
        _: Draw,
        _: Turn,
    ) -> Result<(), ClientError> {
        let query = queries().nth(operation).ok_or_else(|| unexpected("there is no such query"))?;
        client.run(query).map(|_| ())
    }

    fn check(&self, _: &mut dyn Client) -> Result<Vec<String>, ClientError> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_query_for_each_name() {
        assert_eq!(queries().count(), Analytics.operations().len());
    }
}
