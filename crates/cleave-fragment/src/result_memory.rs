//! The memory of large function results, charged to the memory that all queries share.
//!
//! The operators of DataFusion charge what they gather, but not the batch that they work on: forty columns of
//! `repeat(x, 250000000)` are ten gigabytes of one batch. So each function whose result may be larger than its
//! arguments charges it:
//!
//! 1. A statement has one [`ResultMemory`], and the host's part of it runs within it ([`ResultMemory::over`],
//!    [`ResultMemory::within`]). Its logical plan is made within one of its [own kind](ResultMemory::planning).
//! 2. [`charged`] reserves what a function expects to need before it allocates anything, and ties the reservation to
//!    the array that the function gives: it is released with the last reader of the array's values.
//! 3. A function that cannot say before what it needs says so while it works ([`made`]).
//! 4. A large constant is not computed while a logical plan is made: each copy of the plan would hold it. The call
//!    stays in the plan. Where an array is made of its value, a [`constant`](crate::functions::large_constant) does so.
//!
//! What a function has prepared for one batch and needs for the next, as a compiled pattern, is [kept](Kept) here too.
//!
//! Invariant: outside of a [`ResultMemory`], and below [`CHARGED_BYTES_MIN`], nothing is charged.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayData, ArrayRef, make_array};
use arrow::buffer::Buffer;
use arrow::datatypes::DataType;
use bytes::Bytes;
use datafusion_common::{DataFusionError, Result};
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion_expr::ColumnarValue;
use futures::future::BoxFuture;

use crate::wanted;

/// Results of fewer bytes are not charged.
pub const CHARGED_BYTES_MIN: usize = 64 << 10;
/// Larger constants are not computed while their statement is planned.
const PLANNED_BYTES_MAX: usize = 1 << 20;
/// Nor are those beyond so many bytes in all.
const PLANNED_BYTES_OF_ALL_MAX: usize = 8 << 20;

tokio::task_local! {
    static CURRENT: Arc<ResultMemory>;
}

thread_local! {
    /// What the calls in progress on this thread have reserved, the innermost last.
    static CALLS: RefCell<Vec<Option<MemoryReservation>>> = const { RefCell::new(Vec::new()) };
}

/// The memory of one statement's function results. See the [module](self).
pub struct ResultMemory {
    pool: Arc<dyn MemoryPool>,
    is_planning: bool,
    /// Bytes of constants that were computed while the statement was planned.
    planned: AtomicUsize,
    kept: Mutex<Vec<(String, Box<dyn Any + Send>)>>,
}

impl fmt::Debug for ResultMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResultMemory")
            .field("is_planning", &self.is_planning)
            .finish_non_exhaustive()
    }
}

/// A constant that is too large to be part of a plan; its call stays there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a constant of {bytes} bytes is computed when the statement runs")]
struct NotPlanned {
    bytes: usize,
}

impl ResultMemory {
    fn new(pool: &Arc<dyn MemoryPool>, is_planning: bool) -> Arc<Self> {
        let (planned, kept) = (AtomicUsize::new(0), Mutex::default());
        Arc::new(Self { pool: Arc::clone(pool), is_planning, planned, kept })
    }

    /// Whether a constant of so many bytes may be a part of the plan that is made.
    fn may_be_planned(&self, bytes: usize) -> bool {
        let before = self.planned.fetch_add(bytes, Ordering::Relaxed);
        bytes <= PLANNED_BYTES_MAX && before.saturating_add(bytes) <= PLANNED_BYTES_OF_ALL_MAX
    }

    /// Of a statement that runs with memory from `pool`.
    pub fn of(pool: &Arc<dyn MemoryPool>) -> Arc<Self> {
        Self::new(pool, false)
    }

    /// Of a statement whose logical plan is made.
    pub fn of_planning(pool: &Arc<dyn MemoryPool>) -> Arc<Self> {
        Self::new(pool, true)
    }

    /// The result of `work`, which makes a logical plan, with the memory of the work around it.
    pub fn planning<T>(work: impl FnOnce() -> T) -> T {
        match Self::current() {
            Some(around) => Self::of_planning(&around.pool).within(work),
            None => work(),
        }
    }

    /// That of the work that runs now.
    #[must_use]
    pub fn current() -> Option<Arc<Self>> {
        CURRENT.try_with(Arc::clone).ok()
    }

    /// `work`, whose functions charge their results here.
    pub fn over<F: Future>(self: &Arc<Self>, work: F) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(Arc::clone(self), work)
    }

    /// The result of `work`, whose functions charge their results here.
    pub fn within<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(Arc::clone(self), work)
    }

    fn reserve(&self, function: &str, bytes: usize) -> Result<MemoryReservation> {
        let reservation = MemoryConsumer::new(function).register(&self.pool);
        reservation.try_grow(bytes)?;
        Ok(reservation)
    }
}

/// `work` for the statement that runs here, wherever it runs: it charges the same memory, and stops once that is not
/// [wanted] any more.
pub fn for_same_statement<T>(work: BoxFuture<'static, T>) -> BoxFuture<'static, T>
where
    T: Send + 'static,
{
    let work = wanted::carried(work);
    match ResultMemory::current() {
        Some(memory) => Box::pin(memory.over(work)),
        None => work,
    }
}

/// A call of a function, as far as its memory goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    /// Its name, as errors show it.
    pub(crate) function: &'a str,
    /// Bytes that the result is expected to take, without those of a constant result for further rows.
    pub(crate) expected: u64,
    /// The number of rows.
    pub(crate) rows: usize,
    /// All of its arguments are constants, and so is its result.
    pub(crate) is_constant: bool,
}

/// What `compute` gives, charged in the name of the function.
///
/// # Errors
/// Those of `compute`; one of exhausted resources (53200) if the pool does not have the bytes.
pub(crate) fn charged(
    call: Call<'_>,
    compute: impl FnOnce() -> Result<ColumnarValue>,
) -> Result<ColumnarValue> {
    let bytes = usize::try_from(call.expected).unwrap_or(usize::MAX);
    let before = match bytes >= CHARGED_BYTES_MIN {
        true => ResultMemory::current(),
        false => None,
    };
    let planning = before.as_ref().filter(|memory| memory.is_planning && call.is_constant);
    if planning.is_some_and(|memory| !memory.may_be_planned(bytes)) {
        return Err(DataFusionError::External(Box::new(NotPlanned { bytes })));
    }
    let before = before.map(|memory| memory.reserve(call.function, bytes)).transpose()?;
    CALLS.with_borrow_mut(|calls| calls.push(before));
    let mut ended = Ended { is_taken: false };
    let computed = compute();
    let before = ended.reservation();
    let array = match computed? {
        ColumnarValue::Array(array) => array,
        // The array of one row is the constant's only owner.
        ColumnarValue::Scalar(value) if before.is_some() && call.rows == 1 => value.to_array()?,
        scalar => return Ok(scalar),
    };
    let bytes = array.get_array_memory_size();
    if bytes < CHARGED_BYTES_MIN {
        return Ok(ColumnarValue::Array(array));
    }
    let reservation = match (before, ResultMemory::current()) {
        (Some(before), _) => {
            before.try_resize(bytes)?;
            before
        }
        (None, Some(memory)) => memory.reserve(call.function, bytes)?,
        (None, None) => return Ok(ColumnarValue::Array(array)),
    };
    Ok(ColumnarValue::Array(with_reservation(array, reservation)))
}

/// Charges what the function that runs here has made so far beside its arguments: `bytes`, which it is going to copy
/// into its result.
///
/// # Errors
/// One of exhausted resources (53200) if the pool does not have the bytes.
pub fn made(bytes: usize) -> Result<()> {
    if bytes < CHARGED_BYTES_MIN {
        return Ok(());
    }
    let needed = bytes.saturating_mul(2);
    CALLS.with_borrow_mut(|calls| match calls.last_mut() {
        Some(Some(reserved)) if reserved.size() >= needed => Ok(()),
        Some(Some(reserved)) => reserved.try_resize(needed),
        Some(reserved) => {
            let memory = ResultMemory::current();
            let new = memory.map(|memory| memory.reserve("the result of a function", needed));
            *reserved = new.transpose()?;
            Ok(())
        }
        None => Ok(()),
    })
}

/// Takes a call off [`CALLS`] when it ends, also by a panic.
struct Ended {
    is_taken: bool,
}

impl Ended {
    fn reservation(&mut self) -> Option<MemoryReservation> {
        match std::mem::replace(&mut self.is_taken, true) {
            true => None,
            false => CALLS.with_borrow_mut(Vec::pop).flatten(),
        }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        drop(self.reservation());
    }
}

/// Things that functions keep from one batch of a statement to the next, by name; they are not charged.
#[derive(Debug)]
pub struct Kept;

/// Most things that a statement keeps.
const KEPT_MAX: usize = 8;

impl Kept {
    /// Takes what was put away under `name`; None outside of a statement too.
    #[must_use]
    pub fn take<T: Any>(name: &str) -> Option<T> {
        let memory = ResultMemory::current()?;
        let mut kept = memory.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let place = kept.iter().position(|(own, thing)| own == name && thing.is::<T>())?;
        let (_, thing) = kept.remove(place);
        thing.downcast().ok().map(|thing| *thing)
    }

    /// Puts `thing` away; the oldest one goes where there are too many.
    pub fn put<T: Any + Send>(name: String, thing: T) {
        let Some(memory) = ResultMemory::current() else { return };
        let mut kept = memory.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX {
            kept.remove(0);
        }
        kept.push((name, Box::new(thing)));
    }
}

/// `array`, charged to the statement that runs here until its last reader is gone.
///
/// # Errors
/// One of exhausted resources (53200) if the pool does not have the bytes.
pub(crate) fn charged_array(array: ArrayRef) -> Result<ArrayRef> {
    let bytes = array.get_array_memory_size();
    let memory = if bytes < CHARGED_BYTES_MIN { None } else { ResultMemory::current() };
    let Some(memory) = memory else { return Ok(array) };
    let reservation = memory.reserve("a column of a result", bytes)?;
    Ok(with_reservation(array, reservation))
}

/// A buffer that gives its memory's reservation back when it is dropped.
struct Reserved {
    buffer: Buffer,
    _reservation: MemoryReservation,
}

impl AsRef<[u8]> for Reserved {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

/// `array`, whose values own `reservation`.
fn with_reservation(array: ArrayRef, reservation: MemoryReservation) -> ArrayRef {
    let data = array.to_data();
    drop(array);
    make_array(owning(data, reservation))
}

/// `data`, the buffer of whose values owns `reservation`; without such a buffer, the reservation is given back.
fn owning(data: ArrayData, reservation: MemoryReservation) -> ArrayData {
    let is_list = matches!(
        data.data_type(),
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..)
    );
    if is_list && let [items] = data.child_data() {
        let items = owning(items.clone(), reservation);
        return rebuilt(data.into_builder().child_data(vec![items]));
    }
    let mut buffers = data.buffers().to_vec();
    // The last: values behind offsets, or behind views.
    if let Some(values) = buffers.last_mut() {
        let buffer = std::mem::take(values);
        let owner = Reserved { buffer, _reservation: reservation };
        *values = Buffer::from(Bytes::from_owner(owner));
    }
    rebuilt(data.into_builder().buffers(buffers))
}

#[expect(
    unsafe_code,
    reason = "to validate again would read each byte of a text once more; nothing but the owner of a buffer changed"
)]
fn rebuilt(builder: arrow::array::ArrayDataBuilder) -> ArrayData {
    // SAFETY: `owning` is the only caller. The builder comes from valid data; one buffer in it, or in its only child,
    // was replaced by a buffer of the same address and length, which keeps the first one alive. So each offset, view
    // and text in it is as valid as before.
    unsafe { builder.build_unchecked() }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, ListArray, StringArray, StringViewArray};
    use arrow::datatypes::Int64Type;
    use datafusion_common::ScalarValue;
    use datafusion_execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};

    use super::*;

    const POOL_BYTES: usize = 1 << 20;

    fn pool() -> Arc<dyn MemoryPool> {
        Arc::new(GreedyMemoryPool::new(POOL_BYTES))
    }

    fn call(expected: u64) -> Call<'static> {
        Call { function: "f", expected, rows: 1, is_constant: true }
    }

    fn give(array: impl Array + 'static) -> Result<ArrayRef> {
        match charged(call(0), || Ok(ColumnarValue::Array(Arc::new(array))))? {
            ColumnarValue::Array(array) => Ok(array),
            ColumnarValue::Scalar(value) => value.to_array(),
        }
    }

    #[test]
    fn a_large_array_is_charged_until_its_last_reader_is_gone() {
        let pool = pool();
        let memory = ResultMemory::of(&pool);
        let long = "x".repeat(100_000);
        let numbers = std::iter::once(Some((0..20_000).map(Some)));
        let arrays: [ArrayRef; 4] = [
            Arc::new(StringArray::from(vec![Some(long.as_str()), None, Some("y")])),
            Arc::new(StringViewArray::from(vec![Some(long.as_str()), None])),
            Arc::new(Int64Array::from_iter_values(0..20_000)),
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(numbers)),
        ];
        for array in arrays {
            let expected = make_array(array.to_data());
            let given = memory.within(|| give(make_array(array.to_data()))).unwrap();
            assert_eq!(&given, &expected);
            assert!(pool.reserved() >= 100_000, "{}", given.data_type());
            let rest = match given.data_type() {
                DataType::List(_) => given.as_list::<i32>().value(0).slice(1, 1),
                _ => given.slice(0, 1),
            };
            drop(given);
            assert!(pool.reserved() >= 100_000, "a slice holds the values");
            drop(rest);
            assert_eq!(pool.reserved(), 0);
        }
    }

    #[test]
    fn what_the_pool_lacks_is_refused_before_it_is_computed() {
        let pool = pool();
        let memory = ResultMemory::of(&pool);
        let computed = |_| -> Result<ColumnarValue> { panic!("computed all the same") };
        let refused = memory.within(|| charged(call(2 << 20), || computed(())));
        assert!(refused.is_err() && pool.reserved() == 0);
        let small = give(Int64Array::from_iter_values(0..200_000)).unwrap();
        assert_eq!((small.len(), pool.reserved()), (200_000, 0), "nothing is charged outside");
        let large = Int64Array::from_iter_values(0..200_000);
        assert!(memory.within(|| give(large)).is_err());
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn what_a_function_makes_is_charged_while_it_works() {
        let pool = pool();
        let memory = ResultMemory::of(&pool);
        let work = |bytes: usize| {
            let seen = Arc::clone(&pool);
            charged(call(0), move || {
                made(bytes)?;
                assert!(bytes < CHARGED_BYTES_MIN || seen.reserved() >= 2 * bytes);
                Ok(ColumnarValue::Array(Arc::new(Int64Array::from_iter_values(0..20_000))))
            })
        };
        let given = memory.within(|| work(300_000)).unwrap();
        assert!((160_000..400_000).contains(&pool.reserved()), "{}", pool.reserved());
        drop(given);
        assert!(memory.within(|| work(600_000)).is_err());
        assert_eq!(pool.reserved(), 0);
        assert!(work(10).is_ok(), "nothing is charged outside");
    }

    #[test]
    fn what_is_kept_is_taken_by_its_name_and_kind() {
        let memory = ResultMemory::of(&pool());
        memory.within(|| {
            (0..20).for_each(|number| Kept::put(number.to_string(), number));
            assert_eq!(Kept::take::<i32>("3"), None, "the oldest are gone");
            assert_eq!(Kept::take::<String>("19"), None);
            assert_eq!(Kept::take::<i32>("19"), Some(19));
            assert_eq!(Kept::take::<i32>("19"), None);
        });
        Kept::put("1".to_owned(), 1);
        assert_eq!(Kept::take::<i32>("1"), None);
    }

    #[test]
    fn a_large_constant_is_an_array_of_its_row_and_no_part_of_a_plan() {
        let pool = pool();
        let of_bytes = |bytes: usize| {
            let compute = move || {
                let text = ScalarValue::Utf8(Some("x".repeat(bytes)));
                Ok(ColumnarValue::Scalar(text))
            };
            charged(call(bytes as u64), compute)
        };
        let memory = ResultMemory::of(&pool);
        let constant = memory.within(|| of_bytes(800_000)).unwrap();
        assert!(matches!(constant, ColumnarValue::Array(_)) && pool.reserved() >= 800_000);
        assert!(memory.within(|| of_bytes(800_000)).is_err());
        drop(constant);
        assert_eq!(pool.reserved(), 0);
        let unbounded: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let planning = ResultMemory::of_planning(&unbounded);
        assert!(planning.within(|| of_bytes(2 << 20)).is_err());
        assert!(planning.within(|| of_bytes(100_000)).is_ok());
        let planned = (0..1000).filter(|_| planning.within(|| of_bytes(100_000)).is_ok());
        assert!(
            (50..90).contains(&planned.count()),
            "all together take no more than some megabytes"
        );
        // A sample of rows is evaluated while a statement is planned.
        let sampled = Call { rows: 10, is_constant: false, ..call(2 << 20) };
        let numbers = || Ok(ColumnarValue::Array(Arc::new(Int64Array::from_iter_values(0..10))));
        assert!(planning.within(|| charged(sampled, numbers)).is_ok());
    }
}
