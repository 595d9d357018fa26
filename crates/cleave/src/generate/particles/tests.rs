//! Tests of the particles: the same rows every time, and as many fast ones as the documents say.

use arrow::array::AsArray;
use arrow::datatypes::{Float32Type, Int64Type};

use super::*;

/// `ke > c` selects about this share of the rows, as `docs/operations.md` lists.
const SHARES: [(f64, f64); 8] = [
    (1.505, 0.000_004),
    (1.14, 0.000_1),
    (0.827, 0.001),
    (0.424, 0.01),
    (0.2, 0.025),
    (0.0357, 0.1),
    (0.0123, 0.5),
    (0.00206, 0.94),
];

/// All batches, the parts in order.
fn batches(particles: &Particles) -> Vec<RecordBatch> {
    (0..particles.parts(TABLE)).flat_map(|part| particles.part(TABLE, part)).collect()
}

/// The values of one measure.
fn measure(batch: &RecordBatch, name: &str) -> Vec<f32> {
    batch.column_by_name(name).unwrap().as_primitive::<Float32Type>().values().to_vec()
}

#[test]
fn a_row_follows_from_seed_and_id_alone() {
    // Two parts, of which the second ends within a batch.
    let rows = PART_ROWS + 70_000;
    let (first, again) = (Particles::new(rows, 7), Particles::new(rows, 7));
    let backward: Vec<Vec<RecordBatch>> =
        (0..again.parts(TABLE)).rev().map(|part| again.part(TABLE, part).collect()).collect();
    let forward: Vec<Vec<RecordBatch>> =
        (0..first.parts(TABLE)).map(|part| first.part(TABLE, part).collect()).collect();
    assert_eq!(forward.len(), 2);
    assert!(forward.iter().eq(backward.iter().rev()));
    let few = batches(&Particles::new(100, 7));
    assert_eq!(few, [forward[0][0].slice(0, 100)], "a table of other length");
    let others = batches(&Particles::new(100, 8));
    assert_ne!(measure(&few[0], "x"), measure(&others[0], "x"), "another seed");
}

#[test]
fn ids_ascend_without_gaps_over_all_parts() {
    for rows in [1, BATCH_ROWS, PART_ROWS, PART_ROWS + 1] {
        let particles = Particles::new(rows, 42);
        let [table]: [TableSpec; 1] = particles.tables().try_into().unwrap();
        let mut next = 1_i64;
        for batch in batches(&particles) {
            assert_eq!(batch.schema(), table.schema);
            assert!((1..=BATCH_ROWS).contains(&u64::try_from(batch.num_rows()).unwrap()));
            for id in batch.column(0).as_primitive::<Int64Type>().values() {
                assert_eq!(*id, next);
                next += 1;
            }
        }
        assert_eq!(u64::try_from(next - 1).unwrap(), rows);
        assert_eq!(table.rows, rows);
    }
}

#[test]
fn energies_are_those_of_the_momenta_and_places_are_in_the_box() {
    let [batch]: [RecordBatch; 1] = batches(&Particles::new(20_000, 42)).try_into().unwrap();
    let [x, y, z, ux, uy, uz, ke] = MEASURES.map(|name| measure(&batch, name));
    for places in [x, y, z] {
        assert!(places.iter().all(|place| (0.0_f32..1.0).contains(place)));
        let mean = places.iter().copied().map(f64::from).sum::<f64>() / 20_000.0;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
    }
    for (row, energy) in ke.into_iter().enumerate() {
        let square: f64 =
            [ux[row], uy[row], uz[row]].map(|part| f64::from(part).powi(2)).iter().sum();
        let expected = (1.0 + square).sqrt() - 1.0;
        assert!(
            (f64::from(energy) - expected).abs() <= 1e-7 * expected + 1e-12,
            "{energy}, {expected}"
        );
    }
}

#[test]
fn thresholds_select_the_documented_shares() {
    let rows = 500_000;
    let energies: Vec<f64> = batches(&Particles::new(rows, 42))
        .iter()
        .flat_map(|batch| measure(batch, "ke"))
        .map(f64::from)
        .collect();
    for (threshold, share) in SHARES {
        let found =
            energies.iter().filter(|energy| **energy > threshold).count() as f64 / rows as f64;
        // Four standard deviations, and the rounding of the list.
        let margin = 4.0 * (share * (1.0 - share) / rows as f64).sqrt() + 0.005 * share;
        assert!((found - share).abs() < margin, "{found} of the rows have ke > {threshold}");
    }
    assert!(energies.iter().any(|energy| *energy > 1.14), "no row is fast");
}

#[test]
fn parts_and_tables_that_do_not_exist_are_empty() {
    let particles = Particles::new(10, 42);
    assert_eq!(particles.parts("no_such_table"), 0);
    assert_eq!(particles.part("no_such_table", 0).count(), 0);
    assert_eq!(particles.part(TABLE, 1).count(), 0);
}

#[test]
fn the_statement_creates_the_columns_that_come() {
    let sql = Particles::schema_sql();
    let body =
        sql.strip_prefix("CREATE TABLE particles (\n").unwrap().split_once("\n);").unwrap().0;
    let created: Vec<Field> = body
        .lines()
        .map(|line| {
            let (name, rest) = line.trim().split_once(' ').unwrap();
            let data_type = match rest.trim_end_matches(',') {
                "bigint PRIMARY KEY" => DataType::Int64,
                "real NOT NULL" => DataType::Float32,
                other => panic!("{name} {other}"),
            };
            Field::new(name, data_type, false)
        })
        .collect();
    assert_eq!(Schema::new(created), *Particles::new(1, 1).schema);
}
