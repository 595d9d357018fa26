//! Loads TPC-C's tables and their rows (clauses 1.3 and 4.3.3), in key order; with CH-benCHmark's tables on request.

use super::{DISTRICTS, Tpcc, name_of};
use crate::bench::client::{Client, ClientError};
use crate::bench::random::{between, digits, letters};
use crate::bench::workloads::csv;
use crate::generate::random::{Draw, Scatter, mix};

/// The tables, in the order in which they are made.
const TABLES: &str = include_str!("tables.sql");
/// Those of CH-benCHmark.
const SUPPLIERS: &str = include_str!("suppliers.sql");
/// Date of all loaded rows.
pub(super) const MADE_AT: &str = "2026-01-01 00:00:00";
/// Number of suppliers.
const SUPPLIER_COUNT: u64 = 10_000;
/// Keys of nations are characters, so that a customer's state leads to one.
const NATIONS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Makes the tables.
pub(super) fn load(tpcc: &Tpcc, client: &mut dyn Client, seed: u64) -> Result<(), ClientError> {
    client.run(TABLES)?;
    let Tpcc { warehouses, items, customers, with_suppliers } = *tpcc;
    let draw_of = move |table: u64, row: u64| Draw::new(mix(seed, row), table);
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    let districts = count(warehouses * DISTRICTS);

    let rows = csv(count(items), move |number, piece| {
        let draw = &mut draw_of(1, number);
        let (image, name) = (between(draw, 1, 10_000), letters(draw, 14, 24));
        let (price, data) = (between(draw, 100, 10_000), original(draw));
        piece.push_str(&format!("{},{image},{name},{},{data}\n", number + 1, cents(price)));
    });
    client.load("item", rows)?;

    let rows = csv(count(warehouses), move |number, piece| {
        let draw = &mut draw_of(2, number);
        let (name, address) = (letters(draw, 6, 10), address(draw));
        let tax = ten_thousandths(between(draw, 0, 2000));
        let ytd = cents(customers * DISTRICTS * 1000);
        piece.push_str(&format!("{},{name},{address},{tax},{ytd}\n", number + 1));
    });
    client.load("warehouse", rows)?;

    let rows = csv(count(warehouses * items), move |number, piece| {
        let draw = &mut draw_of(3, number);
        let (warehouse, item) = (number / count(items) + 1, number % count(items) + 1);
        piece.push_str(&format!("{item},{warehouse},{}", between(draw, 10, 100)));
        for _ in 0..DISTRICTS {
            piece.push(',');
            piece.push_str(&letters(draw, 24, 24));
        }
        piece.push_str(&format!(",0,0,0,{}\n", original(draw)));
    });
    client.load("stock", rows)?;

    let rows = csv(districts, move |number, piece| {
        let draw = &mut draw_of(4, number);
        let (warehouse, district) = (number / 10 + 1, number % 10 + 1);
        let (name, address) = (letters(draw, 6, 10), address(draw));
        let tax = ten_thousandths(between(draw, 0, 2000));
        let (ytd, next) = (cents(customers * 1000), customers + 1);
        piece.push_str(&format!("{district},{warehouse},{name},{address},{tax},{ytd},{next}\n"));
    });
    client.load("district", rows)?;

    let rows = csv(districts * count(customers), move |number, piece| {
        let draw = &mut draw_of(5, number);
        let (of, customer) = (number / count(customers), number % count(customers) + 1);
        let (warehouse, district) = (of / 10 + 1, of % 10 + 1);
        let name_number = match customer {
            1..=1000 => i64::try_from(customer).unwrap_or(1) - 1,
            _ => Tpcc::skewed(draw, 255, 0, 999),
        };
        let (last, first) = (name_of(name_number), letters(draw, 8, 16));
        let (address, phone) = (address(draw), digits(draw, 16));
        let credit = if draw.below(10) == 0 { "BC" } else { "GC" };
        let (discount, data) = (ten_thousandths(between(draw, 0, 5000)), letters(draw, 300, 500));
        piece.push_str(&format!(
            "{customer},{district},{warehouse},{first},OE,{last},{address},{phone},{MADE_AT},{credit},50000.00,\
             {discount},-10.00,10.00,1,0,{data}\n"
        ));
    });
    client.load("customer", rows)?;

    let rows = csv(districts * count(customers), move |number, piece| {
        let draw = &mut draw_of(6, number);
        let (of, customer) = (number / count(customers), number % count(customers) + 1);
        let (warehouse, district) = (of / 10 + 1, of % 10 + 1);
        let data = letters(draw, 12, 24);
        piece.push_str(&format!(
            "{customer},{district},{warehouse},{district},{warehouse},{MADE_AT},10.00,{data}\n"
        ));
    });
    client.load("history", rows)?;

    // The last 30 % are not delivered.
    let delivered = count(customers) * 7 / 10;
    let order_of = move |number: u64| {
        let (of, order) = (number / count(customers), number % count(customers) + 1);
        let mut draw = draw_of(7, number);
        let lines = between(&mut draw, 5, 15);
        (of / 10 + 1, of % 10 + 1, order, lines, draw)
    };
    let rows = csv(districts * count(customers), move |number, piece| {
        let (warehouse, district, order, lines, mut draw) = order_of(number);
        let scatter = Scatter::new(
            u32::try_from(customers).unwrap_or(u32::MAX),
            mix(seed, warehouse * 10 + district),
        );
        let customer = u64::from(scatter.apply(u32::try_from(order - 1).unwrap_or(0))) + 1;
        let carrier = match order <= delivered {
            true => between(&mut draw, 1, 10).to_string(),
            false => String::new(),
        };
        piece.push_str(&format!(
            "{order},{district},{warehouse},{customer},{MADE_AT},{carrier},{lines},1\n"
        ));
    });
    client.load("orders", rows)?;

    let rows = csv(districts * count(customers), move |number, piece| {
        let (warehouse, district, order, lines, mut draw) = order_of(number);
        for line in 1..=lines {
            let (item, info) = (between(&mut draw, 1, items), letters(&mut draw, 24, 24));
            let (at, amount) = match order <= delivered {
                true => (MADE_AT, 0),
                false => ("", between(&mut draw, 1, 999_999)),
            };
            let amount = cents(amount);
            piece.push_str(&format!(
                "{order},{district},{warehouse},{line},{item},{warehouse},{at},5,{amount},{info}\n"
            ));
        }
    });
    client.load("order_line", rows)?;

    let rows = csv(districts * count(customers), move |number, piece| {
        let (warehouse, district, order, ..) = order_of(number);
        if order > delivered {
            piece.push_str(&format!("{order},{district},{warehouse}\n"));
        }
    });
    client.load("new_order", rows)?;
    client.run("CREATE INDEX customer_by_name ON customer (c_w_id, c_d_id, c_last, c_first)")?;
    client.run("CREATE INDEX orders_by_customer ON orders (o_w_id, o_d_id, o_c_id, o_id)")?;
    if with_suppliers {
        load_suppliers(client, seed)?;
    }
    client.run("ANALYZE").map(|_| ())
}

fn load_suppliers(client: &mut dyn Client, seed: u64) -> Result<(), ClientError> {
    client.run(SUPPLIERS)?;
    let regions = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"];
    let rows = csv(5, move |number, piece| {
        let name = usize::try_from(number).ok().and_then(|place| regions.get(place));
        piece.push_str(&format!("{number},{},none\n", name.copied().unwrap_or_default()));
    });
    client.load("region", rows)?;
    let rows = csv(NATIONS.len() as u64, move |number, piece| {
        let key = usize::try_from(number)
            .ok()
            .and_then(|place| NATIONS.get(place))
            .copied()
            .unwrap_or(b'0');
        let name =
            if key == b'G' { "Germany".to_owned() } else { format!("Nation {}", char::from(key)) };
        piece.push_str(&format!("{key},{name},{},none\n", number % 5));
    });
    client.load("nation", rows)?;
    let rows = csv(SUPPLIER_COUNT, move |number, piece| {
        let draw = &mut Draw::new(mix(seed, number), 8);
        let nation = draw.pick(NATIONS);
        let (address, phone) = (letters(draw, 10, 40), digits(draw, 15));
        let balance = cents(between(draw, -99_999, 999_999));
        let comment = if draw.below(1000) == 0 { "a bad supplier" } else { "a supplier" };
        piece.push_str(&format!(
            "{number},Supplier{number:09},{address},{nation},{phone},{balance},{comment}\n"
        ));
    });
    client.load("supplier", rows)
}

/// Two streets, city, state and code; a state begins with a nation's key.
fn address(draw: &mut Draw) -> String {
    let (first, second, city) =
        (letters(draw, 10, 20), letters(draw, 10, 20), letters(draw, 10, 20));
    let state = [draw.pick(NATIONS), draw.pick(NATIONS)].map(char::from);
    format!("{first},{second},{city},{}{},{}11111", state[0], state[1], digits(draw, 4))
}

/// Text that contains "ORIGINAL" in one of ten cases (clause 4.3.3.1).
fn original(draw: &mut Draw) -> String {
    let text = letters(draw, 26, 42);
    match draw.below(10) {
        0 => format!("{}ORIGINAL", text.get(8..).unwrap_or_default()),
        _ => text,
    }
}

/// An amount in hundredths, as a decimal.
pub(super) fn cents(amount: i64) -> String {
    let sign = if amount < 0 { "-" } else { "" };
    format!("{sign}{}.{:02}", amount.abs() / 100, amount.abs() % 100)
}

fn ten_thousandths(share: i64) -> String {
    format!("0.{share:04}")
}
