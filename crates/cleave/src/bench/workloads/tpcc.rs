//! TPC-C: a wholesaler's warehouses, five transactions, and the consistency conditions of its rows after any run.
//!
//! | transaction | share | |
//! |---|---|---|
//! | new order | 45 % | 5 to 15 lines; one in a hundred names an item that there is not, and is undone |
//! | payment | 43 % | customer by number or by last name |
//! | order status | 4 % | reads |
//! | delivery | 4 % | the oldest order of each district |
//! | stock level | 4 % | reads of the last 20 orders |
//!
//! 1. [`load`] makes tables and rows, [`transactions`] are the five.
//! 2. [`Tpcc::check`] checks the rows against the consistency conditions 1 to 4 (clause 3.3.2) and the clients' own
//!    sums.
//!
//! There is no think time and no screens, so its figures are transactions a second and not tpmC. A scale below 1 is one
//! warehouse with fewer items, customers and orders. With CH-benCHmark's tables too, [analytic queries](super::ch) run
//! over the same rows.
//!
//! Source: TPC Benchmark C, revision 5.11.

mod load;
mod transactions;

use super::{Turn, Workload, by_share, unexpected};
use crate::bench::client::{Client, ClientError};
use crate::bench::random::between;
use crate::generate::random::Draw;

/// Districts of a warehouse.
const DISTRICTS: i64 = 10;

/// TPC-C.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tpcc {
    warehouses: i64,
    items: i64,
    /// Customers of a district; equally many orders are loaded.
    customers: i64,
    /// Whether suppliers, nations and regions are made.
    with_suppliers: bool,
}

impl Tpcc {
    pub(crate) fn new(scale: f64, with_suppliers: bool) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "a bounded scale")]
        let part = |of: f64, least: i64| ((of * scale.min(1.0)) as i64).max(least);
        #[expect(clippy::cast_possible_truncation, reason = "a bounded scale")]
        let warehouses = (scale as i64).max(1);
        let (items, customers) = (part(100_000.0, 100), part(3000.0, 30));
        Self { warehouses, items, customers, with_suppliers }
    }

    /// TPC-C's non-uniform random number (clause 2.1.6).
    fn skewed(draw: &mut Draw, mask: i64, low: i64, high: i64) -> i64 {
        const SHIFT: i64 = 42;
        let drawn = between(draw, 0, mask) | between(draw, low, high);
        (drawn + SHIFT) % (high - low + 1) + low
    }

    fn customer(&self, draw: &mut Draw) -> i64 {
        Self::skewed(draw, 1023, 1, self.customers)
    }

    fn item(&self, draw: &mut Draw) -> i64 {
        Self::skewed(draw, 8191, 1, self.items)
    }

    /// A last name of an existing customer.
    fn last_name(&self, draw: &mut Draw) -> String {
        name_of(Self::skewed(draw, 255, 0, 999.min(self.customers - 1)))
    }
}

/// A last name of three syllables (clause 4.3.2.3).
fn name_of(number: i64) -> String {
    const SYLLABLES: [&str; 10] =
        ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
    let syllable = |digit: i64| {
        let place = usize::try_from(digit.rem_euclid(10)).unwrap_or(0);
        SYLLABLES.get(place).copied().unwrap_or_default()
    };
    format!("{}{}{}", syllable(number / 100), syllable(number / 10), syllable(number))
}

impl Workload for Tpcc {
    fn operations(&self) -> &'static [&'static str] {
        &["new order", "payment", "order status", "delivery", "stock level"]
    }

    fn load(&self, client: &mut dyn Client, seed: u64) -> Result<(), ClientError> {
        load::load(self, client, seed)
    }

    fn prepare(&self, client: &mut dyn Client) -> Result<(), ClientError> {
        transactions::STATEMENTS.iter().try_for_each(|(name, sql)| client.prepare(name, sql))
    }

    fn choose(&self, draw: &mut Draw, _: Turn) -> usize {
        by_share(draw, &[450, 430, 40, 40, 40])
    }

    fn perform(
        &self,
        operation: usize,
        client: &mut dyn Client,
        mut draw: Draw,
        (who, number): Turn,
    ) -> Result<(), ClientError> {
        let draw = &mut draw;
        let home = 1 + i64::try_from(who).unwrap_or(0) % self.warehouses;
        match operation {
            0 => transactions::new_order(self, client, draw, home),
            1 => transactions::payment(self, client, draw, home),
            2 => transactions::order_status(self, client, draw, home),
            3 => transactions::delivery(client, draw, home),
            4 => {
                let district = 1 + i64::try_from(number).unwrap_or(0) % DISTRICTS;
                transactions::stock_level(client, draw, (home, district))
            }
            _ => Err(unexpected("TPC-C has no such transaction")),
        }
    }

    fn check(&self, client: &mut dyn Client) -> Result<Vec<String>, ClientError> {
        // Each query returns a row for each violation.
        let conditions = [
            (
                "1: a warehouse has received what its districts have",
                "SELECT w_id FROM warehouse JOIN (SELECT d_w_id, sum(d_ytd) AS ytd FROM district GROUP BY d_w_id) AS d
                 ON d_w_id = w_id WHERE w_ytd <> ytd",
            ),
            (
                "2: a district's next order follows its last one",
                "SELECT d_w_id, d_id FROM district
                     JOIN (SELECT o_w_id, o_d_id, max(o_id) AS last FROM orders GROUP BY o_w_id, o_d_id) AS o
                     ON o_w_id = d_w_id AND o_d_id = d_id WHERE d_next_o_id <> last + 1",
            ),
            (
                "3: the new orders of a district have no gaps",
                "SELECT no_w_id, no_d_id FROM new_order GROUP BY no_w_id, no_d_id
                 HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)",
            ),
            (
                "4: orders have the lines that they say",
                "SELECT o_w_id, o_d_id FROM
                     (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS said FROM orders GROUP BY o_w_id, o_d_id) AS o
                     JOIN (SELECT ol_w_id, ol_d_id, count(*) AS lines FROM order_line GROUP BY ol_w_id, ol_d_id) AS l
                     ON ol_w_id = o_w_id AND ol_d_id = o_d_id WHERE said <> lines",
            ),
            (
                "8: a warehouse has received what its history says",
                "SELECT w_id FROM warehouse JOIN (SELECT h_w_id, sum(h_amount) AS paid FROM history GROUP BY h_w_id) \
                    AS h
                 ON h_w_id = w_id WHERE w_ytd <> paid",
            ),
            (
                "9: a district has received what its history says",
                "SELECT d_w_id, d_id FROM district
                     JOIN (SELECT h_w_id, h_d_id, sum(h_amount) AS paid FROM history GROUP BY h_w_id, h_d_id) AS h
                     ON h_w_id = d_w_id AND h_d_id = d_id WHERE d_ytd <> paid",
            ),
        ];
        let mut faults = Vec::new();
        for (condition, sql) in conditions {
            let broken = client.run(sql)?.len();
            if broken > 0 {
                faults.push(format!("condition {condition}: not so in {broken} places"));
            }
        }
        Ok(faults)
    }
}
