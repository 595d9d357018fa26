//! Roots as copies of the log have them: bytes of a state, and messages that are written as they are.

use std::collections::BTreeMap;
use std::path::Path;

use cleave_media::files;
use prost::Message;

use super::{Decoder, ROOT, ROOT_FORMAT, ROOT_NEW, encode, encode_device, file_error};
use crate::catalog::{CatalogState, DeviceEntry, proto};
use crate::error::Result;

/// The bytes of a root file that says `state`.
pub fn sealed(state: &CatalogState) -> Vec<u8> {
    ROOT_FORMAT.seal(&encode(state))
}

/// The device that `message` says; None: it says none.
pub fn device_entry(message: &proto::Device) -> Option<DeviceEntry> {
    let path = Path::new(ROOT);
    let decoder = Decoder { directory: path, path, files: BTreeMap::new(), faults: Vec::new() };
    decoder.device(message.clone()).ok()
}

/// What a root says of `entry`.
pub fn device_message(entry: &DeviceEntry) -> proto::Device {
    encode_device(entry)
}

/// Makes `message` the root of `directory`, whose database is not open.
///
/// # Errors
/// [`Error::Io`](crate::error::Error::Io).
pub fn replace_message(directory: &Path, message: &proto::Root) -> Result<()> {
    let (new, path) = (directory.join(ROOT_NEW), directory.join(ROOT));
    let bytes = ROOT_FORMAT.seal(&message.encode_to_vec());
    files::write_durably(&new, &bytes).map_err(|error| file_error(&new, "write", error))?;
    files::rename(&new, &path).map_err(|error| file_error(&path, "replace", error))?;
    files::sync_directory(directory).map_err(|error| file_error(directory, "sync", error))
}
