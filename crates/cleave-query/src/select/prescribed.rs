//! Which of the devices that a statement names (`compute_on`) runs fragments over which pages.
//!
//! ```text
//!   compute_on = 'n1:a, n1:b, n2:a'    pages on n1:a ─▶ n1:a               it is named
//!                                      pages on n1:c ─▶ n1:a, n1:b         page by page in turns: those of its node
//!                                      pages on n3:a ─▶ n1:a, n1:b, n2:a   likewise: there is none of its node
//!                                      a mirror of n1:b and n3:a ─▶ n1:b   those of its copies that are named
//! ```
//!
//! A device reads the pages of its node as its own, and those of other nodes over a link. It refuses a fragment over
//! pages that it cannot reach, and the host runs it: that is slower, and never wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use cleave_catalog::catalog::DeviceId;
use cleave_catalog::error::Result;
use cleave_catalog::settings::Prescribed;
use cleave_engine::device::Device;
use cleave_sql::statement::placement::device_list;

use super::statement_context::StatementContext;

/// The devices that the statement of `context` names; none where each runs fragments over its own pages.
///
/// # Errors
/// [`Error::UnknownName`](cleave_catalog::error::Error::UnknownName) for one that is not attached;
/// [`Error::Invalid`](cleave_catalog::error::Error::Invalid) for a name that is missing, or comes twice.
pub(super) fn named(context: &StatementContext) -> Result<Vec<Arc<Device>>> {
    let settings = context.settings();
    match settings.computers() {
        Prescribed::Named(names) if settings.is_prescribed() => {
            let names = device_list(names)?;
            names.iter().map(|name| context.database().device_named(name)).collect()
        }
        _ => Ok(Vec::new()),
    }
}

/// For each device of `nodes`, which has the name of its node or nothing: the `named` ones that run fragments over its
/// pages. Mirrors have them on these `copies`. Empty if none are named.
pub(super) fn takers(
    named: &[DeviceId],
    nodes: &BTreeMap<DeviceId, &str>,
    copies: &BTreeMap<DeviceId, Vec<DeviceId>>,
) -> BTreeMap<DeviceId, Vec<DeviceId>> {
    if named.is_empty() {
        return BTreeMap::new();
    }
    let of_home = |(home, node): (&DeviceId, &&str)| {
        if named.contains(home) {
            return (*home, vec![*home]);
        }
        let copies = copies.get(home).into_iter().flatten();
        let copies: Vec<DeviceId> = copies.filter(|copy| named.contains(copy)).copied().collect();
        if !copies.is_empty() {
            return (*home, copies);
        }
        let is_beside = |id: &&DeviceId| !node.is_empty() && nodes.get(*id) == Some(node);
        let beside: Vec<DeviceId> = named.iter().filter(is_beside).copied().collect();
        (*home, if beside.is_empty() { named.to_vec() } else { beside })
    };
    nodes.iter().map(of_home).collect()
}

#[cfg(test)]
mod tests {
    //! The takers of pages, by where these lie.

    use super::*;

    const NODES: [&str; 5] = ["n1", "n1", "n1", "n2", ""];

    fn takers_of(named: &[u32]) -> Vec<Vec<u32>> {
        let nodes = (0..).map(DeviceId).zip(NODES).collect();
        let named: Vec<DeviceId> = named.iter().copied().map(DeviceId).collect();
        let copies = BTreeMap::from([(DeviceId(4), vec![DeviceId(2), DeviceId(3)])]);
        let takers = takers(&named, &nodes, &copies).into_values();
        takers.map(|takers| takers.into_iter().map(|taker| taker.0).collect()).collect()
    }

    #[test]
    fn a_device_that_is_named_takes_its_own_pages() {
        assert_eq!(takers_of(&[]), [[0_u32; 0]; 0]);
        assert_eq!(takers_of(&[0, 1, 2, 3, 4]), [[0], [1], [2], [3], [4]]);
    }

    #[test]
    fn others_are_taken_within_the_node_where_one_is_named_there() {
        let of_both = [vec![0], vec![0], vec![0], vec![3], vec![3]];
        assert_eq!(takers_of(&[0, 3]), of_both, "the last is a mirror of 2 and 3");
        assert_eq!(takers_of(&[0, 1])[4], [0, 1]);
        assert_eq!(takers_of(&[1, 2])[0], [1, 2]);
        // Without a name no two are of one node.
        assert_eq!(takers_of(&[4]), [[4], [4], [4], [4], [4]]);
    }
}
