//! How much memory a process takes that changes more rows than fit into the memory of queries.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tempfile::tempdir;

/// `--query-memory` and `--buffer-pool`, in MiB.
const BUDGET: u64 = 16;
/// What a process may take beside its budgets, in MiB.
const BESIDE: u64 = 64;

/// A shell that is told statements one after the other.
struct Shell {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shell {
    fn begin(db: &Path) -> Self {
        let budget = format!("{BUDGET}MB");
        let mut command = Command::new(env!("CARGO_BIN_EXE_cleave"));
        command.args(["sql", "--format", "csv", "--query-memory", &budget, "--buffer-pool"]);
        command.arg(&budget).arg("--db").arg(db);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, input, output }
    }

    /// The row of a query that follows `statements`.
    fn row(&mut self, statements: &str, query: &str) -> String {
        writeln!(self.input, "{statements};\n{query};\nSELECT 'end' AS said;").unwrap();
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "{lines:?}");
            if line.trim_end() == "end" {
                break;
            }
            lines.push(line.trim_end().to_owned());
        }
        // Behind the row stands the name of the next column.
        lines.into_iter().rev().find(|line| line != "said" && !line.is_empty()).unwrap()
    }

    /// The most memory that the process has had, in MiB.
    fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let status = status.unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
    }

    fn end(mut self) {
        drop(self.input);
        assert!(self.process.wait().unwrap().success());
    }
}

#[test]
fn changes_of_ten_times_the_memory_of_queries_stay_within_it() {
    let place = tempdir().unwrap();
    let mut shell = Shell::begin(place.path());
    let table = "CREATE TABLE t (id int PRIMARY KEY, n int, note text)";
    shell.row(table, "SELECT count(*) FROM t");
    let insert = |from: u32, to: u32| {
        format!(
            "INSERT INTO t SELECT v, 1, lpad(v::text, 400, 'x') FROM generate_series({from}, {to}) AS s(v)"
        )
    };
    // What every process takes that has done each of these once.
    let few = format!("BEGIN; {}; UPDATE t SET n = 0; DELETE FROM t; ROLLBACK", insert(1, 5000));
    shell.row(&few, "SELECT count(*) FROM t");
    let before = shell.peak();
    let statements = format!("BEGIN; {}; {}", insert(1, 200_000), insert(200_001, 400_000));
    let sums = "SELECT count(*), sum(id), sum(n) FROM t";
    assert_eq!(shell.row(&statements, sums), "400000,80000200000,400000");
    assert_eq!(shell.row("UPDATE t SET id = id + 1", sums), "400000,80000600000,400000");
    assert_eq!(shell.row("DELETE FROM t WHERE id % 2 = 0", sums), "200000,40000200000,200000");
    assert_eq!(shell.row("COMMIT", sums), "200000,40000200000,200000");
    assert_eq!(shell.row("UPDATE t SET n = n + 1", sums), "200000,40000200000,400000");
    let peak = shell.peak();
    assert!(peak < before + 2 * BUDGET + BESIDE, "{peak} MiB, and {before} MiB before");
    shell.end();
}
