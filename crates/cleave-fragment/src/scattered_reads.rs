//! One read of pages that lie in several places: the parts are asked for side by side, and their answers come in the
//! order of the read.

use futures::future::try_join_all;

/// The answers of `parts` in the order of the read: each has the places of its answers among all, and what gets these.
///
/// # Errors
/// The first of a part's.
pub async fn in_order<T, E, F>(parts: Vec<(Vec<usize>, F)>) -> Result<Vec<T>, E>
where
    F: Future<Output = Result<Vec<T>, E>>,
{
    let answers = parts.into_iter().map(|(places, part)| async move {
        let answers = part.await?;
        Ok::<_, E>(places.into_iter().zip(answers).collect::<Vec<_>>())
    });
    let mut answers: Vec<(usize, T)> = try_join_all(answers).await?.into_iter().flatten().collect();
    answers.sort_unstable_by_key(|(place, _)| *place);
    Ok(answers.into_iter().map(|(_, answer)| answer).collect())
}

#[cfg(test)]
mod tests {
    //! Answers of several parts.

    use futures::executor::block_on;
    use futures::future::ready;

    use super::*;

    #[test]
    fn answers_come_in_the_order_of_the_read() {
        let parts = |of_last: Result<Vec<char>, &'static str>| {
            vec![(vec![1, 3], ready(Ok(vec!['b', 'd']))), (vec![0, 2], ready(of_last))]
        };
        assert_eq!(block_on(in_order(parts(Ok(vec!['a', 'c'])))), Ok(vec!['a', 'b', 'c', 'd']));
        assert_eq!(block_on(in_order(parts(Err("lost")))), Err("lost"));
    }
}
