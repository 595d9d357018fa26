//! A set of keys that removes nearly all rows is asked before the columns of a predicate that costs more are read.

use std::sync::Mutex;

use bytes::Bytes;
use cleave_store::{ColumnRef, PageColumns, PageRead, PageRef, StoreError};
use datafusion_physical_expr::expressions::not;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::*;

/// Pages that note the columns of each read, without those of versions.
#[derive(Debug)]
struct Noted {
    pages: MediaPages,
    reads: Mutex<Vec<Vec<u32>>>,
}

impl PageSource for Noted {
    fn read(&self, reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        async move {
            let user = |read: &PageRead| -> Vec<u32> {
                let of_user = |column: &ColumnRef| match column {
                    ColumnRef::User(id) => Some(*id),
                    _ => None,
                };
                read.columns.iter().filter_map(of_user).collect()
            };
            self.reads.lock().unwrap().extend(reads.iter().map(user));
            self.pages.read(reads).await
        }
        .boxed()
    }

    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
        self.pages.read_overflow(segment, pages)
    }
}

/// The columns of each read of a scan whose predicate has no short cut, below a join with these keys of `k`.
fn reads(table: &Stored, keys: &[i64]) -> Vec<Vec<u32>> {
    let keys: Vec<Option<i64>> = keys.iter().copied().map(Some).collect();
    let filter = learnt(&table.batch, 0, &values(&ColumnType::Int, &keys), Handed::List);
    let of_seven = |index| not(both(column("n", index), Operator::Eq, lit(6))).unwrap();
    let scan = below(own_alone(table, Some(of_seven(0))), std::slice::from_ref(&filter));
    let pages = MediaPages::new(Arc::clone(&table.media) as Arc<dyn Media>);
    let noted = Arc::new(Noted { pages, reads: Mutex::default() });
    let pages = Arc::clone(&noted) as Arc<dyn PageSource>;
    let found = rows_from(pages, table, &scan, Snapshot { commit: 1 }).unwrap();
    assert_eq!(found, filtered(&table.batch, &[filter, of_seven(1)]));
    std::mem::take(&mut *noted.reads.lock().unwrap())
}

#[test]
fn columns_of_few_keys_are_read_first() {
    const K: u32 = 1;
    const N: u32 = 2;
    // Ten pages.
    let wide: Vec<Option<i64>> = (0..7000).map(|row| Some(row * 7919 % 7001)).collect();
    let table = stored(&ColumnType::Int, &wide, PageClass::BULK);
    let on_page_7 = 5000 * 7919 % 7001;
    let read = reads(&table, &[on_page_7, 7001, -5]);
    // The first page has no match: then the keys alone are asked, until a page has one.
    assert_eq!(read[..7], [vec![N, K], vec![K], vec![K], vec![K], vec![K], vec![K], vec![K]]);
    assert_eq!(read[7..10], [vec![K], vec![N], vec![N, K]]);
    let all: Vec<i64> = (0..7001).collect();
    assert_eq!(reads(&table, &all), vec![vec![N, K]; 10]);
}
