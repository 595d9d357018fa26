//! How reads are divided among commands, and how long they are waited for. The rest is tested over sockets.

use std::cell::{Cell, RefCell};

use cleave_media::{BlockAddress, Extent};
use tokio::sync::oneshot;

use super::*;

#[tokio::test]
async fn an_answer_is_waited_for_while_the_link_gets_on() {
    for (step, is_there) in [(PROGRESS_BYTES, true), (PROGRESS_BYTES - 1, false)] {
        let (sender, answer) = oneshot::channel();
        let (sender, looks) = (RefCell::new(Some(sender)), Cell::new(0));
        let received = || {
            looks.set(looks.get() + 1);
            if looks.get() == 4
                && let Some(sender) = sender.take()
            {
                sender.send(()).unwrap();
            }
            looks.get() * step
        };
        let found = while_received(answer, received, Duration::ZERO).await;
        assert_eq!(found, is_there.then_some(Ok(())));
    }
}

#[test]
fn reads_are_divided_in_order_and_none_is_larger_than_it_may_be() {
    let blocks = READ_BYTES / BLOCK_SIZE as u64;
    let item = |block_count: u64| {
        let block_count = u32::try_from(block_count).unwrap();
        ReadItem::Blocks(Extent { start: BlockAddress(block_count.into()), block_count })
    };
    let sizes = [1, blocks - 1, 1, blocks + 7, 3, blocks, blocks - 3, 2, 1, 1];
    let items: Vec<ReadItem> = sizes.into_iter().map(item).collect();
    let commands = commands_of(items.clone());
    let counts: Vec<usize> = commands.iter().map(Vec::len).collect();
    assert_eq!(counts, [2, 1, 1, 1, 1, 3, 1]);
    assert_eq!(commands.concat(), items);
    for command in commands {
        let bytes: u64 = command.iter().map(ReadItem::byte_count).sum();
        assert!(bytes <= READ_BYTES || command.len() == 1, "{bytes}");
    }
    assert!(commands_of(Vec::new()).is_empty());
}
