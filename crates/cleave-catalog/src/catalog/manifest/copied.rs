//! Manifests as log replicas have them: bytes of a state, and messages that are written as they are.

use std::collections::BTreeMap;
use std::path::Path;

use cleave_media::files;
use prost::Message;

use super::{Decoder, MANIFEST, MANIFEST_FORMAT, MANIFEST_NEW, encode, encode_device, file_error};
use crate::catalog::{CatalogState, DeviceEntry, proto};
use crate::error::Result;

/// The bytes of a manifest file that says `state`.
pub fn sealed(state: &CatalogState) -> Vec<u8> {
    MANIFEST_FORMAT.seal(&encode(state))
}

/// The device that `message` says; None: it says none.
pub fn device_entry(message: &proto::Device) -> Option<DeviceEntry> {
    let path = Path::new(MANIFEST);
    let decoder = Decoder { directory: path, path, files: BTreeMap::new(), faults: Vec::new() };
    decoder.device(message.clone()).ok()
}

/// What a manifest says of `entry`.
pub fn device_message(entry: &DeviceEntry) -> proto::Device {
    encode_device(entry)
}

/// Makes `message` the manifest of `directory`, whose database is not open.
///
/// # Errors
/// [`Error::Io`](crate::error::Error::Io).
pub fn replace_message(directory: &Path, message: &proto::Manifest) -> Result<()> {
    let (new, path) = (directory.join(MANIFEST_NEW), directory.join(MANIFEST));
    let bytes = MANIFEST_FORMAT.seal(&message.encode_to_vec());
    files::write_durably(&new, &bytes).map_err(|error| file_error(&new, "write", error))?;
    files::rename(&new, &path).map_err(|error| file_error(&path, "replace", error))?;
    files::sync_directory(directory).map_err(|error| file_error(directory, "sync", error))
}
