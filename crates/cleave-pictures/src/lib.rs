//! Pictures of plans and of figures, as SVG.
