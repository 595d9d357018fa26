//! Maps errors of media, store and DataFusion to statuses that a host can act on.

use arrow::error::ArrowError;
use cleave_fragment::command::{DeviceError, DeviceErrorCause, LockRefusal};
use cleave_fragment::functions::ArgumentFault;
use cleave_fragment::functions::bounded::ResultTooLarge;
use cleave_fragment::{OutOfReservedPages, RowLockTimeout, RowNotFree, SpillDamaged};
use cleave_media::MediaError;
use cleave_store::{FrameError, StoreError};
use datafusion_common::DataFusionError;

use crate::node::HomeUnreachable;
use crate::peers::PeerFault;

/// An error of DataFusion, which ran a fragment.
pub(crate) fn of_engine(error: DataFusionError) -> DeviceError {
    let root = error.find_root();
    let cause = match root {
        DataFusionError::ResourcesExhausted(_) => DeviceErrorCause::OutOfMemory,
        DataFusionError::External(source) => match source.downcast_ref::<StoreError>() {
            Some(store) => return of_store(store),
            None if let Some(why) = source.downcast_ref::<LockRefusal>() => return of_locks(why),
            // Of rows that other devices were to send.
            None if let Some(own) = source.downcast_ref::<DeviceError>() => return own.clone(),
            None if source.is::<OutOfReservedPages>() => DeviceErrorCause::OutOfReserved,
            // The host's words for it are these.
            None if source.is::<RowNotFree>() => {
                return DeviceError::new(DeviceErrorCause::LockNotAvailable, source.to_string());
            }
            None if source.is::<RowLockTimeout>() => {
                return DeviceError::new(DeviceErrorCause::LockTimeout, source.to_string());
            }
            None if source.is::<SpillDamaged>() => DeviceErrorCause::Corrupt,
            // The host has its own message for it.
            None if source.is::<ResultTooLarge>() => DeviceErrorCause::OutOfMemory,
            None if source.is::<ArgumentFault>() => DeviceErrorCause::Unsupported,
            None => {
                let media = source.downcast_ref::<MediaError>();
                media.map_or(DeviceErrorCause::Execution, cause_of_media)
            }
        },
        DataFusionError::NotImplemented(_) => DeviceErrorCause::Unsupported,
        DataFusionError::ArrowError(error, _) => return of_expression(error),
        _ => DeviceErrorCause::Execution,
    };
    DeviceError::new(cause, root.strip_backtrace())
}

/// An error of an expression on its input: the host reports it as its own.
fn of_expression(error: &ArrowError) -> DeviceError {
    let (cause, message) = match error {
        ArrowError::DivideByZero => (DeviceErrorCause::DivideByZero, error.to_string()),
        ArrowError::ArithmeticOverflow(message) => (DeviceErrorCause::Overflow, message.clone()),
        ArrowError::CastError(message) => (DeviceErrorCause::InvalidValue, message.clone()),
        ArrowError::ExternalError(source) if source.is::<ArgumentFault>() => {
            (DeviceErrorCause::Unsupported, error.to_string())
        }
        _ => (DeviceErrorCause::Execution, error.to_string()),
    };
    DeviceError::new(cause, message)
}

/// A run that gets no locks.
pub(crate) fn of_locks(why: &LockRefusal) -> DeviceError {
    let cause = match why {
        LockRefusal::NoTable => DeviceErrorCause::Refused,
        // The host knows more of the reason.
        LockRefusal::Over | LockRefusal::Deadlock | LockRefusal::TooMany | LockRefusal::Spoilt => {
            DeviceErrorCause::Execution
        }
    };
    DeviceError::new(cause, why.to_string())
}

/// A fragment that is malformed, has an operator which no device runs, or exceeds its memory.
pub(crate) fn of_decoding(error: &DataFusionError) -> DeviceError {
    let root = error.find_root();
    let cause = match root {
        DataFusionError::ResourcesExhausted(_) => DeviceErrorCause::OutOfMemory,
        _ => DeviceErrorCause::Unsupported,
    };
    DeviceError::new(cause, root.strip_backtrace())
}

/// An error of pages.
pub(crate) fn of_store(error: &StoreError) -> DeviceError {
    let cause = match error {
        StoreError::NewerFormat { .. } | StoreError::Frame(FrameError::Version { .. }) => {
            DeviceErrorCause::Unsupported
        }
        StoreError::Corrupt { .. } | StoreError::Frame(_) => DeviceErrorCause::Corrupt,
        StoreError::Media { source, .. } => cause_of_media(source),
        StoreError::Source(source) if source.is::<HomeUnreachable>() => {
            DeviceErrorCause::Unsupported
        }
        // Its words name that device.
        StoreError::Source(source) if source.is::<PeerFault>() => {
            return DeviceError::new(DeviceErrorCause::Peer, source.to_string());
        }
        StoreError::Source(_) => DeviceErrorCause::Io,
        StoreError::Mismatch { .. } | StoreError::OutOfRange { .. } => DeviceErrorCause::Refused,
        _ => DeviceErrorCause::Execution,
    };
    DeviceError::new(cause, error.to_string())
}

/// An error of media.
pub(crate) fn of_media(error: &MediaError) -> DeviceError {
    DeviceError::new(cause_of_media(error), error.to_string())
}

fn cause_of_media(error: &MediaError) -> DeviceErrorCause {
    match error {
        MediaError::OutOfRange { .. }
        | MediaError::NotWholeBlocks { .. }
        | MediaError::Withheld { .. } => DeviceErrorCause::Refused,
        MediaError::Full { .. } => DeviceErrorCause::OutOfSpace,
        _ => DeviceErrorCause::Io,
    }
}

#[cfg(test)]
mod tests;
