//! Tests of how the pages of one statement are shared out among commands.

use cleave_store::PageKind;

use super::*;

fn page(bytes: usize) -> EncodedPage {
    EncodedPage {
        page: 0,
        kind: PageKind::Heap,
        bytes: AlignedBuffer::zeroed(bytes),
        row_count: 1,
        checksum: 0,
        vid_first: 1,
        zones: Vec::new(),
        overflow_first_count: (0, 0),
    }
}

#[test]
fn pages_go_in_commands_of_a_bounded_size() {
    let shape = |sizes: &[usize]| -> Vec<usize> {
        let pages: Vec<EncodedPage> = sizes.iter().map(|bytes| page(*bytes)).collect();
        let commands = commands(&pages);
        assert_eq!(commands.concat(), pages, "every page once, in its order");
        commands.iter().map(|command| command.len()).collect()
    };
    assert_eq!(shape(&[]), Vec::<usize>::new());
    assert_eq!(shape(&[16 << 10; 100]), [100]);
    assert_eq!(shape(&[3 << 20; 5]), [2, 2, 1]);
    assert_eq!(shape(&[COMMAND_BYTES, 4096]), [1, 1]);
    assert_eq!(shape(&[4096, COMMAND_BYTES + 4096, 4096, 4096]), [1, 1, 2]);
}
