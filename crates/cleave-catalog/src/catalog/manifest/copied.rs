//! Manifests for log replicas: the bytes of a catalog version, and messages that are written unchanged.

use std::collections::BTreeMap;
use std::path::Path;

use cleave_media::files;
use prost::Message;

use super::{Decoder, MANIFEST, MANIFEST_FORMAT, MANIFEST_NEW, encode, encode_device, file_error};
use crate::catalog::{CatalogState, DeviceEntry, proto};
use crate::error::Result;

/// The bytes of the manifest file of `state`.
pub fn sealed(state: &CatalogState) -> Vec<u8> {
    MANIFEST_FORMAT.seal(&encode(state))
}

/// The device of `message`; None if it is invalid.
pub fn device_entry(message: &proto::Device) -> Option<DeviceEntry> {
    let path = Path::new(MANIFEST);
    let decoder = Decoder { directory: path, path, files: BTreeMap::new(), faults: Vec::new() };
    decoder.device(message.clone()).ok()
}

/// The manifest's message for `entry`.
pub fn device_message(entry: &DeviceEntry) -> proto::Device {
    encode_device(entry)
}

/// Writes `message` as the manifest of `directory`, whose database is not open.
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
