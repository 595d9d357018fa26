//! `cleaved`: a device as a process. The code is in [`cleave_device::command_line`].

use std::process::ExitCode;

fn main() -> ExitCode {
    cleave_device::main_with_args(std::env::args_os().skip(1))
}
