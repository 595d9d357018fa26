//! Loads of new lists beside transactions that change lists, the loaded ones too.
//!
//! To the [check](super::check) a load is an append to each of its lists, all of which were absent. So that lists are
//! absent again and again, sessions go on to further keys while the history lasts. Two loads of one list, or a load and
//! an INSERT of it, must not both succeed: one of the values would be lost.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use cleave_host::{Error, Session};
use cleave_media::SplitMix64;
use futures::StreamExt;

use super::check::Op;
use super::{KEYS, Recorder};
use crate::support::run;

/// Transactions of a session after which it goes on to the next key.
const TRANSACTIONS_EACH: usize = 3;
/// Keys of the table from which fragments load: more than a history reaches.
const SOURCE_KEYS: u64 = 1_000;

/// The first key of a session that has ended so many transactions.
pub(super) fn first_key(ended: usize) -> u64 {
    (ended / TRANSACTIONS_EACH) as u64
}

/// The table from which fragments load, on the device of the lists.
pub(super) async fn fill_source(session: &mut Session) {
    run(session, "DROP TABLE IF EXISTS source; CREATE TABLE source (id int)").await;
    let fill = format!("INSERT INTO source SELECT * FROM generate_series(0, {SOURCE_KEYS})");
    run(session, &fill).await;
}

impl Recorder {
    /// Loads some absent lists by one statement outside of a block: by a fragment, or as `COPY` does.
    pub(super) async fn load_alone(&mut self, random: &mut SplitMix64) -> Result<(), Error> {
        self.ops.clear();
        // Lists that others have most likely not come to yet.
        let first_key = self.first_key() + random.below(KEYS);
        let keys = first_key..=first_key + random.below(KEYS);
        let first = self.next_value + 1;
        self.next_value += 2 * KEYS;
        let value = |key: u64| first + key - first_key;
        for key in keys.clone() {
            self.ops.push(Op::Append { key, value: value(key), is_kept: true });
        }
        if random.below(2) == 0 {
            let (from, to) = (keys.start(), keys.end());
            let insert = format!(
                "INSERT INTO list SELECT id, ',' || ({first} + id - {first_key}) FROM source \
                 WHERE id BETWEEN {from} AND {to}"
            );
            self.session.run(&insert).await?;
        } else {
            let ids = keys.clone().map(|key| i32::try_from(key).unwrap());
            let ids = Int32Array::from_iter_values(ids);
            let elements = keys.map(|key| format!(",{}", value(key)));
            let elements = StringArray::from_iter_values(elements);
            let columns: [(&str, ArrayRef); 2] =
                [("id", Arc::new(ids)), ("elements", Arc::new(elements))];
            let batch = RecordBatch::try_from_iter(columns).unwrap();
            let rows = futures::stream::iter([Ok(batch)]).boxed();
            self.session.load("list", rows, None).await?;
        }
        self.end(true);
        Ok(())
    }
}
