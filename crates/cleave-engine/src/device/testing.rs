//! For unit tests: a database over a real embedded device.

use std::path::Path;
use std::sync::Arc;

use cleave_catalog::error::Error;
use cleave_device::{Runtime, RuntimeOptions};
use cleave_fragment::link::DeviceService;
use cleave_media::{DirectFile, Media, OpenMode};

use crate::storage_engine::log_keeper::Unkept;
use crate::storage_engine::{Engine, OpenOptions};

/// A device over the media at `path`, which is made if it is not there.
pub(crate) fn serve(path: &Path, device_id: [u8; 16]) -> Arc<Runtime> {
    let mode = if path.exists() { OpenMode::Existing } else { OpenMode::Create };
    let media: Arc<dyn Media> = Arc::new(DirectFile::open(path, mode).unwrap());
    let options = RuntimeOptions { cores: 1, io_threads: 2, ..RuntimeOptions::new(device_id) };
    Runtime::new(media, options).unwrap()
}

/// A database of its own.
pub async fn fresh() -> (tempfile::TempDir, Arc<Engine>) {
    let directory = tempfile::tempdir().unwrap();
    let database = Engine::open(directory.path(), options(), Arc::new(Unkept)).await.unwrap();
    (directory, database)
}

/// Makes a database over a device in this process.
pub fn options() -> OpenOptions {
    OpenOptions::new(Arc::new(embedded)).create(true)
}

fn embedded(path: &Path) -> Result<Arc<dyn DeviceService>, Error> {
    let service: Arc<dyn DeviceService> = serve(path, [7; 16]);
    Ok(service)
}
