//! The host over a real embedded device, and over `cleaved` on the far side of a link.

mod crash;
mod devices;
mod insert;
mod load;
mod open;
mod pages;
mod space;
mod sql;
mod support;
