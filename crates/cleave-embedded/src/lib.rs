//! The embedded device: a path of a media file in, a device that runs in this process out. Everything that opens a
//! database uses it.
//!
//! `cleave-host` does not depend on the device's crate. When it needs its embedded device, it asks for a service over a
//! media file; [`embedded_device`] is what a program passes to `OpenOptions::new`.
//!
//! Invariant: this is the only library in which host and device meet. It holds no SQL and no settings of its own.

use std::io;
use std::path::Path;
use std::sync::Arc;

use cleave_device::{Runtime, RuntimeOptions};
use cleave_host::{EmbeddedFactory, Error};
use cleave_media::{DirectFile, MediaIdentity};

/// Memory of all fragments of the embedded device: a few at the default of `device_memory`.
const FRAGMENT_MEMORY_BYTES: u64 = 1 << 30;

/// Makes devices that run in this process, over a media file with its identity beside it.
pub fn embedded_device() -> EmbeddedFactory {
    Arc::new(|media_path: &Path| {
        let failed = |action| move |error| Error::io(action, media_path, io::Error::other(error));
        // As `cleaved` keeps it: in a file beside the media.
        let beside = MediaIdentity::path_beside(media_path);
        let media = DirectFile::open_or_create(media_path, &beside).map_err(failed("open"))?;
        let identity = MediaIdentity::of_media(&media, &beside).map_err(failed("identify"))?;
        let mut options = RuntimeOptions::new(identity.bytes);
        options.fragment_memory_bytes = FRAGMENT_MEMORY_BYTES;
        // It uses the host's.
        options.filter_history_bytes = 0;
        let runtime = Runtime::new(Arc::new(media), options)
            .map_err(|error| Error::io("serve", media_path, io::Error::other(error)))?;
        Ok(runtime as _)
    })
}
