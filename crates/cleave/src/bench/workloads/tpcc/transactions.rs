//! TPC-C's five transactions (clauses 2.4 to 2.8). All lock rows in one order (district, stock by number, customer), so
//! deadlocks are rare.

use super::load::{MADE_AT, cents};
use super::{DISTRICTS, Tpcc};
use crate::bench::client::{Client, ClientError, Rows, Value};
use crate::bench::random::{between, letters};
use crate::bench::workloads::{in_transaction, unexpected};
use crate::generate::random::Draw;

/// The statements, by name.
pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("warehouse tax", "SELECT w_tax FROM warehouse WHERE w_id = $1"),
    (
        "next order",
        "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2
         RETURNING d_next_o_id - 1, d_tax",
    ),
    (
        "customer",
        "SELECT c_discount, c_last, c_credit, c_balance, c_first FROM customer
         WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
    ),
    (
        "customers of a name",
        "SELECT c_id FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first",
    ),
    ("add order", "INSERT INTO orders VALUES ($3, $2, $1, $4, $5, NULL, $6, $7)"),
    ("add new order", "INSERT INTO new_order VALUES ($3, $2, $1)"),
    ("item", "SELECT i_price, i_name, i_data FROM item WHERE i_id = $1"),
    (
        "take stock",
        "UPDATE stock SET s_quantity = CASE WHEN s_quantity >= $3 + 10 THEN s_quantity - $3 ELSE s_quantity - $3 + \
            91 END,
             s_ytd = s_ytd + $3, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + $4
         WHERE s_w_id = $1 AND s_i_id = $2
         RETURNING s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05, s_dist_06, s_dist_07, s_dist_08, \
            s_dist_09, s_dist_10",
    ),
    ("add line", "INSERT INTO order_line VALUES ($3, $2, $1, $4, $5, $6, NULL, $7, $8, $9)"),
    ("pay warehouse", "UPDATE warehouse SET w_ytd = w_ytd + $2 WHERE w_id = $1 RETURNING w_name"),
    (
        "pay district",
        "UPDATE district SET d_ytd = d_ytd + $3 WHERE d_w_id = $1 AND d_id = $2 RETURNING d_name",
    ),
    (
        "pay customer",
        "UPDATE customer SET c_balance = c_balance - $4, c_ytd_payment = c_ytd_payment + $4, c_payment_cnt = \
            c_payment_cnt + 1
         WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3 RETURNING c_credit, c_data",
    ),
    (
        "note customer",
        "UPDATE customer SET c_data = $4 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
    ),
    ("add history", "INSERT INTO history VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"),
    (
        "last order",
        "SELECT o_id, o_entry_d, o_carrier_id FROM orders
         WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER BY o_id DESC LIMIT 1",
    ),
    (
        "lines",
        "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line
         WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
    ),
    (
        "oldest new order",
        "SELECT no_o_id FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 ORDER BY no_o_id LIMIT 1",
    ),
    (
        "take new order",
        "DELETE FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 AND no_o_id = $3",
    ),
    (
        "deliver order",
        "UPDATE orders SET o_carrier_id = $4 WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3 RETURNING o_c_id",
    ),
    (
        "deliver lines",
        "UPDATE order_line SET ol_delivery_d = $4 WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3
         RETURNING ol_amount",
    ),
    (
        "deliver customer",
        "UPDATE customer SET c_balance = c_balance + $4, c_delivery_cnt = c_delivery_cnt + 1
         WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
    ),
    ("district", "SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2"),
    (
        "low stock",
        "SELECT count(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id = $1 AND s_i_id = ol_i_id
         WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id >= $3 AND ol_o_id < $4 AND s_quantity < $5",
    ),
];

/// A line of an order.
struct Line {
    item: i64,
    supplier: i64,
    quantity: i64,
}

/// A new order (clause 2.4).
pub(super) fn new_order(
    tpcc: &Tpcc,
    client: &mut dyn Client,
    draw: &mut Draw,
    home: i64,
) -> Result<(), ClientError> {
    let (district, customer) = (between(draw, 1, DISTRICTS), tpcc.customer(draw));
    let mut lines: Vec<Line> = (0..between(draw, 5, 15))
        .map(|_| Line {
            item: tpcc.item(draw),
            supplier: if draw.below(100) == 0 { other(tpcc, draw, home) } else { home },
            quantity: between(draw, 1, 10),
        })
        .collect();
    lines.sort_by_key(|line| (line.supplier, line.item));
    let is_wrong = draw.below(100) == 0;
    if is_wrong && let Some(last) = lines.last_mut() {
        last.item = tpcc.items + 1;
    }
    let all_local = i64::from(lines.iter().all(|line| line.supplier == home));
    client.run("BEGIN")?;
    client.execute("warehouse tax", &[home.into()])?;
    let numbered = client.execute("next order", &[home, district].map(Value::from))?;
    let order = numbered.number(0, 0).ok_or_else(|| unexpected("a district is missing"))?;
    client.execute("customer", &[home, district, customer].map(Value::from))?;
    let mut values = [home, district, order, customer].map(Value::from).to_vec();
    values.extend([MADE_AT.into(), count(&lines).into(), all_local.into()]);
    client.execute("add order", &values)?;
    client.execute("add new order", &[home, district, order].map(Value::from))?;
    for (number, line) in (1..).zip(&lines) {
        let item = client.execute("item", &[line.item.into()])?;
        let Some(price) = item.text(0, 0).and_then(in_cents) else {
            // Once in a hundred, as the clause requires.
            client.run("ROLLBACK")?;
            return match is_wrong {
                true => Ok(()),
                false => Err(unexpected("an item is missing")),
            };
        };
        let remote = i64::from(line.supplier != home);
        let values = [line.supplier, line.item, line.quantity, remote].map(Value::from);
        let stock = client.execute("take stock", &values)?;
        let place = usize::try_from(district - 1).unwrap_or(0);
        let info = stock.text(0, place).ok_or_else(|| unexpected("stock is missing"))?;
        let mut values = [home, district, order, number, line.item, line.supplier, line.quantity]
            .map(Value::from)
            .to_vec();
        values.extend([cents(price * line.quantity).into(), info.into()]);
        client.execute("add line", &values)?;
    }
    client.run("COMMIT").map(|_| ())
}

/// A payment (clause 2.5).
pub(super) fn payment(
    tpcc: &Tpcc,
    client: &mut dyn Client,
    draw: &mut Draw,
    home: i64,
) -> Result<(), ClientError> {
    let district = between(draw, 1, DISTRICTS);
    let of = match draw.below(100) {
        0..85 => (home, district),
        _ => (other(tpcc, draw, home), between(draw, 1, DISTRICTS)),
    };
    let asked = CustomerKey::draw(tpcc, draw);
    let amount = cents(between(draw, 100, 500_000));
    let note = letters(draw, 12, 24);
    in_transaction(client, |client| {
        client.execute("pay warehouse", &[home.into(), amount.as_str().into()])?;
        client.execute("pay district", &[home.into(), district.into(), amount.as_str().into()])?;
        let customer = asked.number(client, of)?;
        let key = [of.0, of.1, customer].map(Value::from);
        let mut values = key.to_vec();
        values.push(amount.as_str().into());
        let paid = client.execute("pay customer", &values)?;
        if paid.text(0, 0) == Some("BC") {
            let before = paid.text(0, 1).unwrap_or_default();
            let mut data =
                format!("{customer} {} {} {district} {home} {amount} {before}", of.1, of.0);
            data.truncate(500);
            let mut values = key.to_vec();
            values.push(data.into());
            client.execute("note customer", &values)?;
        }
        let mut values = [customer, of.1, of.0, district, home].map(Value::from).to_vec();
        values.extend([MADE_AT.into(), amount.into(), note.into()]);
        client.execute("add history", &values)
    })?;
    Ok(())
}

/// The status of a customer's last order (clause 2.6).
pub(super) fn order_status(
    tpcc: &Tpcc,
    client: &mut dyn Client,
    draw: &mut Draw,
    home: i64,
) -> Result<(), ClientError> {
    let district = between(draw, 1, DISTRICTS);
    let asked = CustomerKey::draw(tpcc, draw);
    in_transaction(client, |client| {
        let customer = asked.number(client, (home, district))?;
        let key = [home, district, customer].map(Value::from);
        client.execute("customer", &key)?;
        let last = client.execute("last order", &key)?;
        if let Some(order) = last.number(0, 0) {
            client.execute("lines", &[home, district, order].map(Value::from))?;
        }
        Ok(())
    })
}

/// The delivery of the oldest order of each district (clause 2.7), each in a transaction of its own, as 2.7.2 allows.
pub(super) fn delivery(
    client: &mut dyn Client,
    draw: &mut Draw,
    home: i64,
) -> Result<(), ClientError> {
    let carrier = between(draw, 1, 10);
    for district in 1..=DISTRICTS {
        in_transaction(client, |client| {
            let mut order;
            loop {
                let oldest =
                    client.execute("oldest new order", &[home, district].map(Value::from))?;
                order = match oldest.number(0, 0) {
                    Some(order) => order,
                    None => return Ok(()),
                };
                let key = [home, district, order].map(Value::from);
                // Another client may have taken it meanwhile.
                if client.execute("take new order", &key)?.count() == 1 {
                    break;
                }
            }
            let key = [home, district, order].map(Value::from);
            let with = |value: Value| key.iter().cloned().chain([value]).collect::<Vec<_>>();
            let delivered = client.execute("deliver order", &with(carrier.into()))?;
            let customer =
                delivered.number(0, 0).ok_or_else(|| unexpected("an order is missing"))?;
            let lines = client.execute("deliver lines", &with(MADE_AT.into()))?;
            let amounts = (0..lines.len()).filter_map(|row| in_cents(lines.text(row, 0)?));
            let sum = cents(amounts.sum());
            let values = [home.into(), district.into(), customer.into(), sum.into()];
            client.execute("deliver customer", &values)?;
            Ok(())
        })?;
    }
    Ok(())
}

/// How many items of the last orders are short (clause 2.8).
pub(super) fn stock_level(
    client: &mut dyn Client,
    draw: &mut Draw,
    (home, district): (i64, i64),
) -> Result<(), ClientError> {
    let threshold = between(draw, 10, 20);
    in_transaction(client, |client| {
        let next = client.execute("district", &[home, district].map(Value::from))?;
        let next = next.number(0, 0).ok_or_else(|| unexpected("a district is missing"))?;
        let values = [home, district, next - 20, next, threshold].map(Value::from);
        client.execute("low stock", &values)
    })?;
    Ok(())
}

/// A customer, by number or by last name.
enum CustomerKey {
    Number(i64),
    Name(String),
}

impl CustomerKey {
    fn draw(tpcc: &Tpcc, draw: &mut Draw) -> Self {
        match draw.below(100) {
            0..60 => Self::Name(tpcc.last_name(draw)),
            _ => Self::Number(tpcc.customer(draw)),
        }
    }

    /// The customer's number: of several with the same name the middle one.
    fn number(
        &self,
        client: &mut dyn Client,
        (warehouse, district): (i64, i64),
    ) -> Result<i64, ClientError> {
        let name = match self {
            Self::Number(number) => return Ok(*number),
            Self::Name(name) => name.as_str(),
        };
        let values = [warehouse.into(), district.into(), name.into()];
        let found: Rows = client.execute("customers of a name", &values)?;
        let middle = found.len().div_ceil(2).saturating_sub(1);
        found.number(middle, 0).ok_or_else(|| unexpected(format!("nobody is called {name}")))
    }
}

/// Another warehouse, if there is one.
fn other(tpcc: &Tpcc, draw: &mut Draw, home: i64) -> i64 {
    if tpcc.warehouses == 1 {
        return home;
    }
    let drawn = between(draw, 1, tpcc.warehouses - 1);
    if drawn >= home { drawn + 1 } else { drawn }
}

fn count(lines: &[Line]) -> i64 {
    i64::try_from(lines.len()).unwrap_or(i64::MAX)
}

/// A decimal with two digits after the point, in hundredths.
fn in_cents(text: &str) -> Option<i64> {
    let (whole, part) = text.split_once('.')?;
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let part: i64 = (part.len() == 2).then(|| part.parse().ok())??;
    Some(whole.parse::<i64>().ok()? * 100 + sign * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_they_are_written() {
        for amount in [0, 1, 99, 100, 12_345, -1, -250] {
            assert_eq!(in_cents(&cents(amount)), Some(amount));
        }
        assert_eq!(in_cents("5"), None);
        assert_eq!(in_cents("5.1"), None);
    }
}
