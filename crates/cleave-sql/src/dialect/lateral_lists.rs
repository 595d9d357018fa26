//! `FROM a, b JOIN LATERAL (… a.x …)`: the list becomes joins from the left, `a CROSS JOIN b JOIN LATERAL …`.
//!
//! DataFusion joins `b` with the subquery first, which then has no `a`. A join that keeps rows of its right side means
//! something else beside more rows on the left, and NATURAL and USING would look for their columns in `a` too: such
//! lists stay.

use datafusion::sql::sqlparser::ast::{
    Join, JoinConstraint, JoinOperator, Select, TableFactor, TableWithJoins,
};

/// Rewrites the list behind FROM.
pub(super) fn join_before_lateral(select: &mut Select) {
    let Some(last) = select.from.iter().rposition(joins_lateral).filter(|place| *place > 0) else {
        return;
    };
    let joins = select.from.iter().take(last + 1).skip(1).flat_map(|item| &item.joins);
    if !joins.map(|join| &join.join_operator).all(is_moved) {
        return;
    }
    let mut items = select.from.drain(..=last);
    let Some(mut first) = items.next() else { return };
    for item in items {
        let join_operator = JoinOperator::CrossJoin(JoinConstraint::None);
        first.joins.push(Join { relation: item.relation, global: false, join_operator });
        first.joins.extend(item.joins);
    }
    select.from.insert(0, first);
}

fn joins_lateral(item: &TableWithJoins) -> bool {
    let is_lateral =
        |join: &Join| matches!(join.relation, TableFactor::Derived { lateral: true, .. });
    item.joins.iter().any(is_lateral)
}

fn is_moved(operator: &JoinOperator) -> bool {
    use JoinOperator as Op;
    let (Op::Join(constraint)
    | Op::Inner(constraint)
    | Op::Left(constraint)
    | Op::LeftOuter(constraint)
    | Op::CrossJoin(constraint)) = operator
    else {
        return false;
    };
    matches!(constraint, JoinConstraint::On(_) | JoinConstraint::None)
}
