//! The limit, the high-water mark and the figures in the error.

use std::sync::Arc;

use datafusion_execution::memory_pool::MemoryConsumer;

use super::*;

#[test]
fn the_limit_holds_and_the_error_says_the_figures() {
    let budget = Arc::new(MemoryBudget::new(1000));
    let pool: Arc<dyn MemoryPool> = Arc::clone(&budget) as Arc<dyn MemoryPool>;
    let sort = MemoryConsumer::new("TopK").register(&pool);
    sort.try_grow(900).unwrap();
    let error = sort.try_grow(101).unwrap_err().to_string();
    assert!(error.contains("TopK asks for 101 bytes more; 900 of the fragment's 1000"), "{error}");
    sort.try_grow(100).unwrap();
    sort.shrink(600);
    assert_eq!(budget.reserved(), 400);
    assert_eq!(budget.peak_bytes(), 1000);
    assert!(sort.try_grow(usize::MAX).is_err());
    drop(sort);
    assert_eq!(budget.reserved(), 0);
}
