//! Tests of locking clauses and LOCK TABLE with several sessions: who waits, who is skipped, who fails.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use cleave_device::{LocalListener, LocalOptions, Runtime};
use cleave_fragment::command::{Execute, LockBatch, LockCall, Outputs};
use cleave_fragment::link::RunStream;
use cleave_fragment::{
    BroadcastExec, BroadcastRows, LockRowsExec, LockWaitPolicy, RowsToLock, build_id,
    encode_fragment,
};
use cleave_host::device::shared_locks::{LockingJob, row_object};
use cleave_host::statement::parse_script;
use cleave_host::{Database, Device, LocalDevice, Session, Started};
use cleave_media::Memory;
use cleave_shmem::{JobLock, JobLocks, Row};
use cleave_txn::{LockOwner, TransactionId};
use datafusion::common::runtime::SpawnedTask;

use crate::support::{fresh, planned, refused, row, rows, run, runtime_options, waits};

async fn jobs(count: usize) -> (tempfile::TempDir, Arc<Database>, Session, Session) {
    let (directory, database) = fresh().await;
    let mut one = database.session();
    run(&mut one, "CREATE TABLE job (id int PRIMARY KEY, state text, n int)").await;
    let fill =
        format!("INSERT INTO job SELECT i, 'new', 0 FROM generate_series(1, {count}) AS g (i)");
    run(&mut one, &fill).await;
    let two = database.session();
    (directory, database, one, two)
}

/// Runs `sql` on a task of its own; gives the session back, and its rows.
fn beside(mut session: Session, sql: &'static str) -> SpawnedTask<(Session, Vec<String>)> {
    SpawnedTask::spawn(async move {
        let outcome = match sql.starts_with("SELECT") {
            true => rows(&mut session, sql).await,
            false => {
                run(&mut session, sql).await;
                vec!["done".to_owned()]
            }
        };
        (session, outcome)
    })
}

const FIRST: &str = "SELECT id FROM job WHERE state = 'new' ORDER BY id LIMIT 1 FOR UPDATE";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_of_a_queue_take_each_job_once() {
    let (_directory, database, mut one, _two) = jobs(40).await;
    let workers = (0..4).map(|_| {
        let database = Arc::clone(&database);
        SpawnedTask::spawn(async move {
            let mut session = database.session();
            let mut taken = 0;
            loop {
                run(&mut session, "BEGIN").await;
                let job = rows(&mut session, &format!("{FIRST} SKIP LOCKED")).await;
                let Some(id) = job.first() else {
                    run(&mut session, "COMMIT").await;
                    return taken;
                };
                let done = format!("UPDATE job SET state = 'done', n = n + 1 WHERE id = {id}");
                run(&mut session, &done).await;
                run(&mut session, "COMMIT").await;
                taken += 1;
            }
        })
    });
    let mut taken = 0;
    for worker in workers.collect::<Vec<_>>() {
        taken += worker.await.unwrap();
    }
    assert_eq!(taken, 40);
    assert_eq!(row(&mut one, "SELECT sum(n), min(n), max(n) FROM job").await, "40,1,1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_wants_a_locked_row_waits_fails_or_passes_it_over() {
    let (_directory, _database, mut one, mut two) = jobs(3).await;
    run(&mut one, "BEGIN").await;
    assert_eq!(rows(&mut one, FIRST).await, ["1"]);
    assert_eq!(rows(&mut two, &format!("{FIRST} SKIP LOCKED")).await, ["2"]);
    assert_eq!(refused(&mut two, &format!("{FIRST} NOWAIT")).await.sqlstate(), "55P03");
    let by_key = "SELECT id FROM job WHERE id = 1 FOR SHARE";
    assert_eq!(refused(&mut two, &format!("{by_key} NOWAIT")).await.sqlstate(), "55P03");
    assert!(rows(&mut two, &format!("{by_key} SKIP LOCKED")).await.is_empty());
    run(&mut two, "SET lock_timeout = 100").await;
    for sql in ["UPDATE job SET n = 1 WHERE id = 1", "DELETE FROM job WHERE id = 1", by_key] {
        assert_eq!(refused(&mut two, sql).await.sqlstate(), "55P03", "{sql}");
    }
    run(&mut two, "SET lock_timeout = 0; UPDATE job SET n = 1 WHERE id = 2").await;
    // The holder of a row's lock updates it, also while others wait for it.
    let mut task = beside(two, "UPDATE job SET n = n + 10 WHERE id = 1");
    assert!(waits(&mut task).await);
    run(&mut one, "UPDATE job SET n = n + 1 WHERE id = 1; COMMIT").await;
    let (mut two, outcome) = task.await.unwrap();
    assert_eq!(outcome, ["done"]);
    assert_eq!(row(&mut two, "SELECT n FROM job WHERE id = 1").await, "11");
    // Shared locks do not exclude each other.
    run(&mut one, "BEGIN; SELECT * FROM job FOR SHARE").await;
    assert_eq!(rows(&mut two, "SELECT id FROM job FOR SHARE NOWAIT").await.len(), 3);
    assert_eq!(refused(&mut two, &format!("{FIRST} NOWAIT")).await.sqlstate(), "55P03");
    run(&mut one, "SAVEPOINT a; SELECT * FROM job FOR UPDATE; ROLLBACK TO a").await;
    assert_eq!(rows(&mut two, "SELECT id FROM job FOR SHARE NOWAIT").await.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_changed_meanwhile_are_read_again() {
    let (_directory, _database, mut one, two) = jobs(3).await;
    run(&mut one, "BEGIN; UPDATE job SET state = 'done' WHERE id = 1").await;
    let mut task = beside(two, FIRST);
    assert!(waits(&mut task).await);
    run(&mut one, "COMMIT").await;
    let (two, outcome) = task.await.unwrap();
    assert_eq!(outcome, ["2"]);
    run(&mut one, "BEGIN; UPDATE job SET n = 5 WHERE id = 2").await;
    let mut task = beside(two, "SELECT n FROM job WHERE id = 2 FOR UPDATE");
    assert!(waits(&mut task).await);
    run(&mut one, "COMMIT").await;
    let (mut two, outcome) = task.await.unwrap();
    assert_eq!(outcome, ["5"]);
    run(&mut two, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM job").await;
    run(&mut one, "UPDATE job SET n = 6 WHERE id = 2").await;
    let error = refused(&mut two, "SELECT n FROM job WHERE id = 2 FOR UPDATE").await;
    assert_eq!(error.sqlstate(), "40001");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_are_locked_against_those_whose_modes_conflict() {
    let (_directory, _database, mut one, mut two) = jobs(3).await;
    run(&mut two, "SET lock_timeout = 100").await;
    for (mode, reads, locks, writes) in [
        ("ACCESS SHARE", true, true, true),
        ("ROW SHARE", true, true, true),
        ("ROW EXCLUSIVE", true, true, true),
        ("SHARE UPDATE EXCLUSIVE", true, true, true),
        ("SHARE", true, true, false),
        ("SHARE ROW EXCLUSIVE", true, true, false),
        ("EXCLUSIVE", true, false, false),
        ("ACCESS EXCLUSIVE", false, false, false),
    ] {
        run(&mut one, &format!("BEGIN; LOCK TABLE job IN {mode} MODE")).await;
        let insert = "INSERT INTO job VALUES (9, 'x', 0) ON CONFLICT DO NOTHING";
        let statements = [
            ("SELECT count(*) FROM job", reads),
            ("SELECT n FROM job WHERE id = 1", reads),
            ("SELECT n FROM job WHERE id = 1 FOR UPDATE", locks),
            ("UPDATE job SET n = n WHERE id = 77", writes),
            ("DELETE FROM job WHERE id = 77", writes),
            (insert, writes),
        ];
        for (sql, is_free) in statements {
            let found = two.run(sql).await.err().map(|error| error.sqlstate());
            assert_eq!(found, (!is_free).then_some("55P03"), "{mode}: {sql}");
        }
        run(&mut one, "UPDATE job SET n = n + 1; SELECT * FROM job; ROLLBACK").await;
    }
    run(&mut two, "BEGIN; UPDATE job SET n = 1").await;
    run(&mut one, "BEGIN").await;
    let error = refused(&mut one, "LOCK TABLE job IN SHARE MODE NOWAIT").await;
    assert_eq!(error.sqlstate(), "55P03");
    run(&mut one, "ROLLBACK").await;
    run(&mut two, "COMMIT").await;
    assert_eq!(row(&mut one, "SELECT sum(n) FROM job").await, "4");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_of_no_key_leaves_room_for_key_share() {
    let (_directory, _database, mut one, mut two) = jobs(3).await;
    run(&mut two, "SET lock_timeout = 100").await;
    let key_share = "SELECT id FROM job WHERE id = 1 FOR KEY SHARE";
    // Without a plan, and with one; an unchanged key does not count as changed.
    for update in [
        "UPDATE job SET n = 7 WHERE id = 1",
        "UPDATE job SET n = 8, id = 1 WHERE id = 1",
        "UPDATE job SET n = n + 1 WHERE id < 2",
        "SELECT * FROM job WHERE id = 1 FOR NO KEY UPDATE",
    ] {
        run(&mut one, &format!("BEGIN; {update}")).await;
        assert_eq!(rows(&mut two, key_share).await, ["1"], "{update}");
        let error = refused(&mut two, "SELECT id FROM job WHERE id = 1 FOR SHARE").await;
        assert_eq!(error.sqlstate(), "55P03", "{update}");
        let error = refused(&mut two, "UPDATE job SET n = 0 WHERE id = 1").await;
        assert_eq!(error.sqlstate(), "55P03", "{update}");
        run(&mut one, "ROLLBACK").await;
        run(&mut two, &format!("BEGIN; {key_share}")).await;
        run(&mut one, &format!("BEGIN; {update}; ROLLBACK")).await;
        run(&mut two, "ROLLBACK").await;
    }
    for change in [
        "DELETE FROM job WHERE id = 1",
        "DELETE FROM job WHERE id < 2",
        "UPDATE job SET id = 9 WHERE id = 1",
        "UPDATE job SET id = id + 8 WHERE id < 2",
        "SELECT * FROM job WHERE id = 1 FOR UPDATE",
        // The row is an own one by the time it goes.
        "UPDATE job SET n = 7 WHERE id = 1; DELETE FROM job WHERE id = 1",
        "UPDATE job SET n = 7 WHERE id = 1; UPDATE job SET id = 9 WHERE id = 1",
    ] {
        run(&mut one, &format!("BEGIN; {change}")).await;
        assert_eq!(refused(&mut two, key_share).await.sqlstate(), "55P03", "{change}");
        run(&mut one, "ROLLBACK").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_share_outlasts_an_update_of_the_row() {
    let (_directory, database, mut one, mut two) = jobs(3).await;
    run(&mut two, "BEGIN; SELECT id FROM job WHERE id = 1 FOR KEY SHARE").await;
    // The row has a new version from then on, and has its key still.
    run(&mut one, "UPDATE job SET n = 7 WHERE id = 1; UPDATE job SET n = n + 1 WHERE id < 2").await;
    run(&mut one, "SET lock_timeout = 100").await;
    for change in [
        "DELETE FROM job WHERE id = 1",
        "DELETE FROM job WHERE id < 2",
        "UPDATE job SET id = 9 WHERE id = 1",
        "UPDATE job SET id = id + 8 WHERE id < 2",
    ] {
        assert_eq!(refused(&mut one, change).await.sqlstate(), "55P03", "{change}");
    }
    run(&mut two, "COMMIT").await;
    run(&mut one, "DELETE FROM job WHERE id = 1").await;
    // Without a unique key nothing of the row outlasts an update.
    run(&mut one, "CREATE TABLE bare (n int, m int UNIQUE); INSERT INTO bare VALUES (1, NULL)")
        .await;
    let mut two = database.session();
    run(&mut two, "BEGIN; SELECT * FROM bare FOR KEY SHARE").await;
    assert_eq!(refused(&mut one, "UPDATE bare SET n = 2").await.sqlstate(), "55P03");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_take_jobs_by_one_statement_each() {
    for take in [
        "DELETE FROM job WHERE id = (SELECT id FROM job ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id",
        "WITH next AS (SELECT id FROM job ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) \
         DELETE FROM job USING next WHERE job.id = next.id RETURNING job.id",
        "UPDATE job SET state = 'done' WHERE id IN (SELECT id FROM job WHERE state = 'new' ORDER BY id LIMIT 1 \
         FOR UPDATE SKIP LOCKED) RETURNING id",
    ] {
        let (_directory, database, _one, _two) = jobs(24).await;
        let workers = (0..3).map(|_| {
            let database = Arc::clone(&database);
            SpawnedTask::spawn(async move {
                let mut session = database.session();
                let mut taken = Vec::new();
                loop {
                    match rows(&mut session, take).await.pop() {
                        Some(id) => taken.push(id.parse::<u32>().unwrap()),
                        None => return taken,
                    }
                }
            })
        });
        let mut taken = Vec::new();
        for worker in workers.collect::<Vec<_>>() {
            taken.extend(worker.await.unwrap());
        }
        taken.sort_unstable();
        assert_eq!(taken, (1..=24).collect::<Vec<u32>>(), "{take}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advisory_locks_exclude_other_sessions_and_end_with_theirs() {
    let (_directory, database, mut one, mut two) = jobs(1).await;
    run(&mut one, "SELECT pg_advisory_lock(1); SELECT pg_advisory_lock_shared(2)").await;
    assert_eq!(row(&mut two, "SELECT pg_try_advisory_lock(1)").await, "f");
    assert_eq!(row(&mut two, "SELECT pg_try_advisory_lock(2)").await, "f");
    assert_eq!(row(&mut two, "SELECT pg_try_advisory_lock_shared(2)").await, "t");
    assert_eq!(row(&mut two, "SELECT pg_advisory_unlock(1)").await, "f");
    run(&mut two, "SET lock_timeout = 100").await;
    assert_eq!(refused(&mut two, "SELECT pg_advisory_lock(1)").await.sqlstate(), "55P03");
    run(&mut two, "SET lock_timeout = 0").await;
    // A session never conflicts with itself, whatever the duration of the lock.
    run(&mut one, "BEGIN; SELECT pg_advisory_xact_lock(1); COMMIT").await;
    let mut task = beside(two, "SELECT pg_advisory_lock(1)");
    assert!(waits(&mut task).await);
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    assert_eq!(row(&mut one, waiting).await, "1");
    run(&mut one, "SELECT pg_advisory_unlock(1)").await;
    let (mut two, _) = task.await.unwrap();
    assert_eq!(row(&mut one, "SELECT pg_try_advisory_lock(1)").await, "f");
    // A deadlock cycle through a lock of the session and one of its transaction.
    run(&mut one, "BEGIN; UPDATE job SET n = 1 WHERE id = 1").await;
    let mut task = beside(two, "UPDATE job SET n = 2 WHERE id = 1");
    assert!(waits(&mut task).await);
    assert_eq!(refused(&mut one, "SELECT pg_advisory_lock(1)").await.sqlstate(), "40P01");
    run(&mut one, "ROLLBACK").await;
    two = task.await.unwrap().0;
    drop(two);
    assert_eq!(row(&mut one, "SELECT pg_try_advisory_lock(1)").await, "t");
    drop(one);
    let mut three = database.session();
    assert_eq!(row(&mut three, "SELECT count(*) FROM pg_locks").await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_advisory_lock_of_a_statement_ends_with_its_last_row() {
    let (_directory, _database, mut one, mut two) = jobs(1).await;
    let locks = "SELECT pg_advisory_xact_lock(id), id FROM job";
    let start = |sql: &str| parse_script(sql).unwrap().pop().unwrap();
    let Started::Rows(mut rows) = one.start(start(locks)).await.unwrap() else { panic!("no rows") };
    assert!(rows.next().await.unwrap().is_some());
    assert_eq!(row(&mut two, "SELECT pg_try_advisory_lock(1)").await, "f");
    while rows.next().await.unwrap().is_some() {}
    assert_eq!(row(&mut two, "SELECT pg_try_advisory_lock(1)").await, "t");
    run(&mut two, "SELECT pg_advisory_unlock(1)").await;
    // Also if the rest of the rows is given up.
    let Started::Rows(mut rows) = one.start(start(locks)).await.unwrap() else { panic!("no rows") };
    assert!(rows.next().await.unwrap().is_some());
    drop(rows);
    assert_eq!(row(&mut two, "SELECT pg_try_advisory_lock(1)").await, "t");
    run(&mut two, "SELECT pg_advisory_unlock(1)").await;
    // In a block it is the block's.
    run(&mut one, "BEGIN").await;
    one.start(start(locks)).await.unwrap().collect().await.unwrap();
    assert_eq!(row(&mut two, "SELECT pg_try_advisory_lock(1)").await, "f");
    run(&mut one, "COMMIT").await;
    assert_eq!(row(&mut two, "SELECT pg_try_advisory_lock(1)").await, "t");
}

/// A job of the device locks rows as updating fragments will: in the lock table that the device shares with the
/// database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_a_job_of_the_device_has_are_waited_for() {
    let (_directory, database, mut one, mut two) = jobs(3).await;
    let devices = database.devices();
    let shared = devices[0].shared_locks().unwrap();
    let begin = || shared.device.begin(shared.host.assign_job().unwrap()).unwrap();
    // Whatever number the table has.
    let locks_all = |job: &JobLocks| {
        let mut rows = (1..64).flat_map(|table| (0..16).map(move |vid| (table << 32, vid)));
        rows.all(|(object, vid)| job.try_lock(Row { object, vid }).unwrap())
    };
    let job = begin();
    assert!(locks_all(&job));
    let first = "SELECT id FROM job WHERE id = 1 FOR UPDATE";
    assert_eq!(refused(&mut two, &format!("{first} NOWAIT")).await.sqlstate(), "55P03");
    assert!(rows(&mut two, &format!("{first} SKIP LOCKED")).await.is_empty());
    run(&mut two, "SET lock_timeout = 100").await;
    let update = "UPDATE job SET n = n + 1 WHERE id = 1";
    assert_eq!(refused(&mut two, update).await.sqlstate(), "55P03");
    run(&mut two, "SET lock_timeout = 0").await;
    let mut task = beside(two, update);
    assert!(waits(&mut task).await);
    shared.host.release_job(job.job()).unwrap();
    let (_two, outcome) = task.await.unwrap();
    assert_eq!(outcome, ["done"]);
    run(&mut one, &format!("BEGIN; {update}")).await;
    let job = begin();
    assert!(!locks_all(&job));
    shared.host.release_job(job.job()).unwrap();
    run(&mut one, "ROLLBACK").await;
    // A device that is given up has nothing any more.
    let job = begin();
    assert!(locks_all(&job));
    shared.host.fence();
    run(&mut one, update).await;
    assert_eq!(row(&mut one, "SELECT n FROM job WHERE id = 1").await, "2");
    assert_eq!(shared.host.contended().unwrap(), []);
}

/// A deadlock cycle through a job of the device, which has a transaction of its own, is found at once, whichever lock
/// closes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlock_cycles_lead_through_jobs_of_the_device() {
    let (_directory, database, mut one, two) = jobs(3).await;
    let devices = database.devices();
    let shared = devices[0].shared_locks().unwrap();
    let owner = LockOwner::new(TransactionId(u64::MAX));
    let job = shared.begin_job(&owner, Arc::new(|_| None)).unwrap().unwrap();
    let side = shared.device.begin(job.hosted().job()).unwrap();
    // The first row is the session's, and all others are the job's.
    run(&mut one, "BEGIN; UPDATE job SET n = 1 WHERE id = 1").await;
    let every = (1..64).flat_map(|table| (0..16).map(move |vid| (table << 32, vid)));
    let not_free: Vec<(u64, u64)> = every
        .filter(|(object, vid)| !side.try_lock(Row { object: *object, vid: *vid }).unwrap())
        .collect();
    let (object, vid) = not_free[0];
    let mut task = beside(two, "UPDATE job SET n = 1 WHERE id = 3");
    assert!(waits(&mut task).await);
    let Ok(JobLock::Waits(waiting)) = side.lock(Row { object, vid }) else {
        panic!("the session has it")
    };
    let ask = LockBatch { number: 0, object, waits: true, vids: vec![vid] };
    job.hosted().take(LockCall::Lock(ask));
    let update = "UPDATE job SET n = 1 WHERE id = 2";
    assert_eq!(refused(&mut one, update).await.sqlstate(), "40P01");
    run(&mut one, "ROLLBACK").await;
    assert!(matches!(side.wait(waiting).await, Ok(JobLock::Held)));
    drop(job);
    assert_eq!(task.await.unwrap().1, ["done"]);
    assert_eq!(shared.host.contended().unwrap(), []);
}

/// A run that locks rows with these VIDs, on the device and as part of the job's transaction.
async fn lock_on(device: &Device, job: &LockingJob, object: u64, vids: Range<u64>) -> RunStream {
    let schema = Arc::new(Schema::new(vec![Field::new("vid", DataType::UInt64, false)]));
    let column = Arc::new(UInt64Array::from_iter_values(vids));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap();
    let sent = BroadcastRows::new(Arc::clone(&schema), vec![batch], None);
    let policy = LockWaitPolicy::Block;
    let to_lock = RowsToLock { table: "job".to_owned(), object, vid: 0, policy, timeout_ms: 0 };
    let plan = LockRowsExec::new(Arc::new(BroadcastExec::new(1, schema)), to_lock).unwrap();
    let request = Execute {
        header: device.next_run(),
        build: build_id(),
        fragment: encode_fragment(&(Arc::new(plan) as _)).unwrap().into(),
        snapshot: 0,
        inputs: Vec::new(),
        index_filters: Vec::new(),
        indexes: Vec::new(),
        broadcasts: vec![sent.encode(1).unwrap()],
        shipped: Vec::new(),
        reserved: Vec::new(),
        extensible: false,
        history: cleave_fragment::filter_history::HistoryMode::Off,
        lends: false,
        homes: Vec::new(),
        peers: Vec::new(),
        peer_rows: Vec::new(),
        outputs: Outputs::One,
        output: 0,
        attaches: false,
        trace: Default::default(),
        partitions: 1,
        memory_bytes: 4 << 20,
        slot_count: 4,
        slot_bytes: 16 << 10,
        settings: Vec::new(),
        fed: Vec::new(),
        first_slot: 0,
        locks: None,
    };
    let link = device.link().await.unwrap();
    link.execute_locking(request, Arc::clone(job.hosted())).await.unwrap()
}

/// Fragments lock rows of a table among sessions that do: of the embedded device, and of a local one, whose process
/// maps the lock table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fragments_lock_rows_among_sessions() {
    let (directory, database, mut one, mut two) = jobs(3).await;
    let socket = directory.path().join("other.sock");
    let runtime =
        Runtime::new(Arc::new(Memory::new()), runtime_options(*b"a locking device")).unwrap();
    let log: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(|_: &str| {});
    let options = LocalOptions { socket: socket.clone(), rate_cap: None, log };
    let listener = LocalListener::bind(runtime, options).await.unwrap();
    let _serving = SpawnedTask::spawn(listener.serve());
    database.add_device("other", LocalDevice { socket, rate_cap: None }).await.unwrap();
    for (name, clause) in [("embedded", ""), ("other", "WITH (device = other)")] {
        run(&mut one, "DROP TABLE job").await;
        run(&mut one, &format!("CREATE TABLE job (id int PRIMARY KEY, n int) {clause}")).await;
        run(&mut one, "INSERT INTO job VALUES (1, 0), (2, 0), (3, 0); CHECKPOINT").await;
        let devices = database.devices();
        let device = devices.iter().find(|device| device.name() == name).unwrap();
        let shared = device.shared_locks().unwrap();
        // The rows of the table, whatever its number is.
        run(&mut one, "BEGIN; UPDATE job SET n = 1 WHERE id = 1").await;
        let probe = shared.device.begin(shared.host.assign_job().unwrap()).unwrap();
        let not_free = (1..64).map(|table| row_object(table, 0)).find(|object| {
            (0..16).any(|vid| !probe.try_lock(Row { object: *object, vid }).unwrap())
        });
        let object = not_free.unwrap();
        shared.host.release_job(probe.job()).unwrap();

        let owner = LockOwner::new(TransactionId(u64::MAX));
        let job = shared.begin_job(&owner, Arc::new(|_| None)).unwrap().unwrap();
        let mut stream = lock_on(device, &job, object, 0..16).await;
        let mut reading = SpawnedTask::spawn(async move {
            let mut count = 0;
            while let Some(batch) = stream.next().await.unwrap() {
                count += batch.num_rows();
            }
            count
        });
        assert!(waits(&mut reading).await, "a session has one of the rows");
        run(&mut one, "ROLLBACK").await;
        assert_eq!(reading.await.unwrap(), 16);
        let nowait = "SELECT id FROM job WHERE id = 2 FOR UPDATE NOWAIT";
        assert_eq!(refused(&mut one, nowait).await.sqlstate(), "55P03");
        let mut task = beside(two, "UPDATE job SET n = 7 WHERE id = 2");
        assert!(waits(&mut task).await, "to the end of the job's transaction");
        assert!(job.hosted().has_its_locks());
        drop(job);
        two = task.await.unwrap().0;
        assert_eq!(row(&mut one, "SELECT n FROM job WHERE id = 2").await, "7");
        assert_eq!(shared.host.contended().unwrap(), []);

        let figures = format!(
            "SELECT side, requests > 0, waits > 0, refusals > 0, conflicts = waits + refusals, \
             false_conflicts <= conflicts, overflows, escalations FROM cleave.device_locks \
             WHERE device = '{name}' ORDER BY side"
        );
        let expected = ["host,t,t,t,t,t,0,0", "jobs,t,t,t,t,t,0,0"];
        assert_eq!(rows(&mut one, &figures).await, expected, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_locking_subquery_reads_counts_at_level_serializable() {
    let (_directory, _database, mut one, mut two) = jobs(3).await;
    for session in [&mut one, &mut two] {
        run(session, "SET default_transaction_isolation = 'serializable'").await;
    }
    let take = "UPDATE job SET n = 1 WHERE id = (SELECT id FROM job WHERE state = 'new' ORDER BY id LIMIT 1 \
                FOR UPDATE) RETURNING id";
    assert_eq!(rows(&mut one, take).await, ["1"]);
    // Each looks for what the other one writes, and finds nothing.
    let insert = |id: u32, own: &str, other: &str| {
        format!(
            "BEGIN; INSERT INTO job SELECT {id}, '{own}', 0 WHERE NOT EXISTS \
             (SELECT 1 FROM job WHERE state = '{other}' FOR UPDATE)"
        )
    };
    run(&mut one, &insert(10, "x", "y")).await;
    run(&mut two, &insert(11, "y", "x")).await;
    run(&mut one, "COMMIT").await;
    assert_eq!(refused(&mut two, "COMMIT").await.sqlstate(), "40001");
    assert_eq!(row(&mut one, "SELECT count(*) FROM job").await, "4");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_taken_by_their_index_without_a_plan() {
    let (_directory, database, mut one, mut two) = jobs(300).await;
    run(&mut one, "CREATE INDEX ON job (state, id)").await;
    let take = "SELECT id FROM job WHERE state = 'new' ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED";
    let all =
        "SELECT id FROM job WHERE state = 'new' AND id > 297 ORDER BY id FOR SHARE SKIP LOCKED";
    let done = "UPDATE job SET state = 'done' WHERE id = 1";
    for sql in [take, all, done] {
        run(&mut one, sql).await;
    }
    let counted = || planned(&database);
    let before = counted();
    run(&mut one, "BEGIN").await;
    run(&mut two, "BEGIN").await;
    assert_eq!(rows(&mut one, take).await, ["2", "3"]);
    assert_eq!(rows(&mut two, take).await, ["4", "5"]);
    // More rows are locked than are looked at first.
    assert_eq!(rows(&mut one, &take.replace("LIMIT 2", "LIMIT 200")).await.len(), 200);
    assert_eq!(rows(&mut two, &take.replace("LIMIT 2", "LIMIT 2 OFFSET 1")).await, ["5", "204"]);
    run(&mut two, "UPDATE job SET state = 'done' WHERE id = 204; COMMIT").await;
    run(&mut one, "COMMIT").await;
    assert_eq!(rows(&mut two, all).await, ["298", "299", "300"]);
    assert_eq!(counted(), before);
}
