//! How reads are divided among commands. The rest is tested over sockets.

use cleave_media::{BLOCK_SIZE, BlockAddress, Extent};

use super::*;

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
