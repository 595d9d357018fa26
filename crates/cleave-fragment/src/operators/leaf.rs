//! What every leaf of a plan without expressions says of itself.

/// The methods of an `ExecutionPlan` without inputs and expressions, for its `impl`: the name, the properties, which
/// are a field, and that nothing is below it. Left to write is how it runs.
macro_rules! leaf {
    ($name:literal) => {
        fn name(&self) -> &'static str {
            $name
        }

        fn properties(&self) -> &std::sync::Arc<datafusion_physical_plan::PlanProperties> {
            &self.properties
        }

        fn children(&self) -> Vec<&std::sync::Arc<dyn datafusion_physical_plan::ExecutionPlan>> {
            Vec::new()
        }

        fn apply_expressions(
            &self,
            _visit: &mut dyn FnMut(
                &std::sync::Arc<dyn datafusion_physical_expr::PhysicalExpr>,
            ) -> datafusion_common::Result<
                datafusion_common::tree_node::TreeNodeRecursion,
            >,
        ) -> datafusion_common::Result<datafusion_common::tree_node::TreeNodeRecursion> {
            Ok(datafusion_common::tree_node::TreeNodeRecursion::Continue)
        }

        fn with_new_children(
            self: std::sync::Arc<Self>,
            _children: Vec<std::sync::Arc<dyn datafusion_physical_plan::ExecutionPlan>>,
        ) -> datafusion_common::Result<std::sync::Arc<dyn datafusion_physical_plan::ExecutionPlan>>
        {
            Ok(self)
        }
    };
}

pub(crate) use leaf;
