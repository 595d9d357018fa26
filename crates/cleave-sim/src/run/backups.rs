//! Backups that a run has taken or begun, and the check of their restores when it ends.
//!
//! 1. An acknowledged backup is whole, whatever happened since; another one is whole or is refused.
//! 2. Every second restore is interrupted: its folder then opens with all data, or does not open and is restored again.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use cleave_device::Runtime;
use cleave_fragment::link::DeviceService;
use cleave_fragment::waiting::{sleep, timeout};
use cleave_host::backup::{check_backup, restore};
use cleave_host::{Database, EmbeddedFactory, Error, OpenOptions};
use cleave_media::Media;

use super::{CALM, Found, STATEMENT_LIMIT, Simulation, differing, rows_of, shape_of};
use crate::machine::runtime_options;
use crate::media::SimMedia;
use crate::model::{Model, Query};
use crate::world::{Rates, SimWorld};

/// Identity of the device of restored databases.
const RESTORED: [u8; 16] = [0x7e; 16];

/// A backup.
pub(super) struct Taken {
    place: PathBuf,
    /// The model when it was taken.
    model: Model,
    acknowledged: bool,
}

impl Taken {
    pub(super) fn new(place: &Path, model: &Model, acknowledged: bool) -> Self {
        Self { place: place.to_owned(), model: model.clone(), acknowledged }
    }
}

impl Simulation {
    /// Restores and checks every backup. The database is closed.
    pub(super) async fn check_backups(&mut self, world: &Rc<SimWorld>) -> Found<()> {
        world.set_rates(Rates::default());
        for (number, taken) in std::mem::take(&mut self.backups).into_iter().enumerate() {
            let name = taken.place.display();
            match check_backup(&taken.place).await {
                Err(error) if taken.acknowledged => return Err(format!("{name}: {error}")),
                Err(_) => continue,
                Ok(_) => {}
            }
            let target = self.folder.join(format!("restored{number}"));
            let media = SimMedia::new("restored", true);
            let mut is_there = false;
            if self.random.below(2) == 0 {
                let changes = self.random.below(60);
                world.log(&format_args!("event: a restore's power goes after {changes} changes"));
                world.cut_host_power_after(changes);
                let restored = restored(&taken.place, &target, &media).await;
                if world.host_has_power() {
                    restored?;
                } else {
                    sleep(CALM).await;
                    world.host_files().lose_power();
                    media.lose_power();
                    self.near.lose_power();
                }
                world.set_host_power(true);
                is_there = Database::open(&target, options(&media)).await.is_ok();
                sleep(CALM).await;
            }
            if !is_there {
                restored(&taken.place, &target, &media).await?;
            }
            compare(&taken.model, &target, &media).await.map_err(|why| format!("{name}: {why}"))?;
            sleep(CALM).await;
        }
        Ok(())
    }
}

async fn restored(backup: &Path, target: &Path, media: &Arc<SimMedia>) -> Found<()> {
    let options = options(media);
    let restoring = timeout(STATEMENT_LIMIT, Box::pin(restore(backup, target, &options))).await;
    let restored = restoring.ok_or("a restore hangs")?;
    restored.map(drop).map_err(|error| format!("a restore: {error}"))
}

async fn compare(model: &Model, target: &Path, media: &Arc<SimMedia>) -> Found<()> {
    let incarnation =
        timeout(STATEMENT_LIMIT, Box::pin(Database::open(target, options(media)))).await;
    let database = incarnation.ok_or("incarnation hangs")?.map_err(|error| error.to_string())?;
    let (found, expected) = (shape_of(&database.catalog()), model.shape());
    if found != expected {
        return Err(format!("it has {found:?}, not {expected:?}"));
    }
    let mut session = database.session();
    let tables = model.tables.keys().cloned().map(Query::All);
    for query in tables.chain(model.of_views()) {
        let asked = timeout(STATEMENT_LIMIT, session.run(&query.sql())).await;
        let outcomes = asked.ok_or("it hangs")?.map_err(|error| error.to_string())?;
        let (found, expected) = (rows_of(&outcomes)?, query.rows(model));
        if found != expected {
            return Err(differing(&query, &expected, &found));
        }
    }
    for (name, last) in &model.sequences {
        let sql = format!("SELECT nextval('{name}')");
        let outcomes = session.run(&sql).await.map_err(|error| error.to_string())?;
        let found = rows_of(&outcomes)?;
        if found.iter().any(|number| number.parse::<i64>().is_ok_and(|number| number <= *last)) {
            return Err(format!("{name} gives {found:?} after {last}"));
        }
    }
    Ok(())
}

/// A database of its own, over `media`.
fn options(media: &Arc<SimMedia>) -> OpenOptions {
    let media = Arc::clone(media);
    let embedded: EmbeddedFactory = Arc::new(move |path: &Path| {
        let media = media.attach() as Arc<dyn Media>;
        let runtime = Runtime::new(media, runtime_options(RESTORED))
            .map_err(|error| Error::io("start", path, std::io::Error::other(error)))?;
        Ok(runtime as Arc<dyn DeviceService>)
    });
    OpenOptions::new(embedded).buffer_pool_bytes(1 << 20)
}
