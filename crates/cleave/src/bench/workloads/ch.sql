-- Q1: what was delivered, by line number
SELECT ol_number, sum(ol_quantity) AS quantity, sum(ol_amount) AS amount, avg(ol_quantity) AS mean_quantity,
       avg(ol_amount) AS mean_amount, count(*) AS lines
FROM order_line
WHERE ol_delivery_d > timestamp '2007-01-02 00:00:00'
GROUP BY ol_number
ORDER BY ol_number;

-- Q2: the supplier with the least stock of an item, in Europe
SELECT su_suppkey, su_name, n_name, i_id, i_name, su_address, su_phone, su_comment
FROM item, supplier, stock, nation, region,
     (SELECT s_i_id AS m_i_id, min(s_quantity) AS m_s_quantity
      FROM stock, supplier, nation, region
      WHERE (s_w_id * s_i_id) % 10000 = su_suppkey AND su_nationkey = n_nationkey AND n_regionkey = r_regionkey
        AND r_name LIKE 'EUROP%'
      GROUP BY s_i_id) AS m
WHERE i_id = s_i_id AND (s_w_id * s_i_id) % 10000 = su_suppkey AND su_nationkey = n_nationkey
  AND n_regionkey = r_regionkey AND i_data LIKE '%b' AND r_name LIKE 'EUROP%' AND i_id = m_i_id
  AND s_quantity = m_s_quantity
ORDER BY n_name, su_name, i_id;

-- Q3: open orders of customers of some states, by what they are worth
SELECT ol_o_id, ol_w_id, ol_d_id, sum(ol_amount) AS revenue, o_entry_d
FROM customer, new_order, orders, order_line
WHERE c_state LIKE 'A%' AND c_id = o_c_id AND c_w_id = o_w_id AND c_d_id = o_d_id
  AND no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
  AND ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
  AND o_entry_d > timestamp '2007-01-02 00:00:00'
GROUP BY ol_o_id, ol_w_id, ol_d_id, o_entry_d
ORDER BY revenue DESC, o_entry_d;

-- Q4: orders with a line that was delivered in time, by their size
SELECT o_ol_cnt, count(*) AS order_count
FROM orders
WHERE o_entry_d >= timestamp '2007-01-02 00:00:00' AND o_entry_d < timestamp '2030-01-02 00:00:00'
  AND EXISTS (SELECT 1 FROM order_line
              WHERE ol_o_id = o_id AND ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_delivery_d >= o_entry_d)
GROUP BY o_ol_cnt
ORDER BY o_ol_cnt;

-- Q5: revenue by nation, where customer and supplier are of the same one
SELECT n_name, sum(ol_amount) AS revenue
FROM customer, orders, order_line, stock, supplier, nation, region
WHERE c_id = o_c_id AND c_w_id = o_w_id AND c_d_id = o_d_id
  AND ol_o_id = o_id AND ol_w_id = o_w_id AND ol_d_id = o_d_id
  AND ol_w_id = s_w_id AND ol_i_id = s_i_id AND (s_w_id * s_i_id) % 10000 = su_suppkey
  AND ascii(substr(c_state, 1, 1)) = su_nationkey AND su_nationkey = n_nationkey AND n_regionkey = r_regionkey
  AND r_name = 'EUROPE' AND o_entry_d >= timestamp '2007-01-02 00:00:00'
GROUP BY n_name
ORDER BY revenue DESC;

-- Q6: revenue of lines of some quantities
SELECT sum(ol_amount) AS revenue
FROM order_line
WHERE ol_delivery_d >= timestamp '1999-01-01 00:00:00' AND ol_delivery_d < timestamp '2030-01-01 00:00:00'
  AND ol_quantity BETWEEN 1 AND 100000;

-- Q7: trade between two nations, by year
SELECT su_nationkey AS supp_nation, substr(c_state, 1, 1) AS cust_nation, extract(year FROM o_entry_d) AS l_year,
       sum(ol_amount) AS revenue
FROM supplier, stock, order_line, orders, customer, nation n1, nation n2
WHERE ol_supply_w_id = s_w_id AND ol_i_id = s_i_id AND (s_w_id * s_i_id) % 10000 = su_suppkey
  AND ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
  AND c_id = o_c_id AND c_w_id = o_w_id AND c_d_id = o_d_id
  AND su_nationkey = n1.n_nationkey AND ascii(substr(c_state, 1, 1)) = n2.n_nationkey
  AND (n1.n_name = 'Germany' AND n2.n_name = 'Nation C' OR n1.n_name = 'Nation C' AND n2.n_name = 'Germany')
  AND ol_delivery_d BETWEEN timestamp '2007-01-02 00:00:00' AND timestamp '2030-01-02 00:00:00'
GROUP BY su_nationkey, substr(c_state, 1, 1), extract(year FROM o_entry_d)
ORDER BY su_nationkey, cust_nation, l_year;

-- Q8: the share of a nation's suppliers in a market, by year
SELECT extract(year FROM o_entry_d) AS l_year,
       sum(CASE WHEN n2.n_name = 'Germany' THEN ol_amount ELSE 0 END) / nullif(sum(ol_amount), 0) AS market_share
FROM item, supplier, stock, order_line, orders, customer, nation n1, nation n2, region
WHERE i_id = s_i_id AND ol_i_id = s_i_id AND ol_supply_w_id = s_w_id AND (s_w_id * s_i_id) % 10000 = su_suppkey
  AND ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
  AND c_id = o_c_id AND c_w_id = o_w_id AND c_d_id = o_d_id
  AND n1.n_nationkey = ascii(substr(c_state, 1, 1)) AND n1.n_regionkey = r_regionkey AND ol_i_id < 1000
  AND r_name = 'EUROPE' AND su_nationkey = n2.n_nationkey
  AND o_entry_d BETWEEN timestamp '2007-01-02 00:00:00' AND timestamp '2030-01-02 00:00:00'
  AND i_data LIKE '%b'
GROUP BY extract(year FROM o_entry_d)
ORDER BY l_year;

-- Q9: revenue by nation and year, of some items
SELECT n_name, extract(year FROM o_entry_d) AS l_year, sum(ol_amount) AS sum_profit
FROM item, stock, supplier, order_line, orders, nation
WHERE ol_i_id = s_i_id AND ol_supply_w_id = s_w_id AND (s_w_id * s_i_id) % 10000 = su_suppkey
  AND ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id AND ol_i_id = i_id
  AND su_nationkey = n_nationkey AND i_data LIKE '%BB'
GROUP BY n_name, extract(year FROM o_entry_d)
ORDER BY n_name, l_year DESC;

-- Q10: customers by what they ordered and have got
SELECT c_id, c_last, sum(ol_amount) AS revenue, c_city, c_phone, n_name
FROM customer, orders, order_line, nation
WHERE c_id = o_c_id AND c_w_id = o_w_id AND c_d_id = o_d_id
  AND ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
  AND o_entry_d >= timestamp '2007-01-02 00:00:00' AND o_entry_d <= ol_delivery_d
  AND n_nationkey = ascii(substr(c_state, 1, 1))
GROUP BY c_id, c_last, c_city, c_phone, n_name
ORDER BY revenue DESC
LIMIT 100;

-- Q11: the items that a nation's suppliers were asked for most
SELECT s_i_id, sum(s_order_cnt) AS ordercount
FROM stock, supplier, nation
WHERE (s_w_id * s_i_id) % 10000 = su_suppkey AND su_nationkey = n_nationkey AND n_name = 'Germany'
GROUP BY s_i_id
HAVING sum(s_order_cnt) > (SELECT sum(s_order_cnt) * 0.005 FROM stock, supplier, nation
                           WHERE (s_w_id * s_i_id) % 10000 = su_suppkey AND su_nationkey = n_nationkey
                             AND n_name = 'Germany')
ORDER BY ordercount DESC;

-- Q12: carriers by order size
SELECT o_ol_cnt, sum(CASE WHEN o_carrier_id = 1 OR o_carrier_id = 2 THEN 1 ELSE 0 END) AS high_line_count,
       sum(CASE WHEN o_carrier_id <> 1 AND o_carrier_id <> 2 THEN 1 ELSE 0 END) AS low_line_count
FROM orders, order_line
WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id AND o_entry_d <= ol_delivery_d
  AND ol_delivery_d < timestamp '2030-01-01 00:00:00'
GROUP BY o_ol_cnt
ORDER BY o_ol_cnt;

-- Q13: how many customers have how many orders
SELECT c_count, count(*) AS custdist
FROM (SELECT c_w_id, c_d_id, c_id, count(o_id) AS c_count
      FROM customer LEFT OUTER JOIN orders
           ON c_w_id = o_w_id AND c_d_id = o_d_id AND c_id = o_c_id AND o_carrier_id > 8
      GROUP BY c_w_id, c_d_id, c_id) AS c_orders
GROUP BY c_count
ORDER BY custdist DESC, c_count DESC;

-- Q14: the share of promoted items
SELECT 100.00 * sum(CASE WHEN i_data LIKE 'PR%' THEN ol_amount ELSE 0 END) / (1 + sum(ol_amount)) AS promo_revenue
FROM order_line, item
WHERE ol_i_id = i_id AND ol_delivery_d >= timestamp '2007-01-02 00:00:00'
  AND ol_delivery_d < timestamp '2030-01-02 00:00:00';

-- Q15: the suppliers with the greatest revenue
WITH revenue (supplier_no, total_revenue) AS (
    SELECT (s_w_id * s_i_id) % 10000, sum(ol_amount)
    FROM order_line, stock
    WHERE ol_i_id = s_i_id AND ol_supply_w_id = s_w_id AND ol_delivery_d >= timestamp '2007-01-02 00:00:00'
    GROUP BY (s_w_id * s_i_id) % 10000)
SELECT su_suppkey, su_name, su_address, su_phone, total_revenue
FROM supplier, revenue
WHERE su_suppkey = supplier_no AND total_revenue = (SELECT max(total_revenue) FROM revenue)
ORDER BY su_suppkey;

-- Q16: items by how many good suppliers they have
SELECT i_name, substr(i_data, 1, 3) AS brand, i_price, count(DISTINCT (s_w_id * s_i_id) % 10000) AS supplier_cnt
FROM stock, item
WHERE i_id = s_i_id AND i_data NOT LIKE 'zz%'
  AND (s_w_id * s_i_id) % 10000 NOT IN (SELECT su_suppkey FROM supplier WHERE su_comment LIKE '%bad%')
GROUP BY i_name, substr(i_data, 1, 3), i_price
ORDER BY supplier_cnt DESC;

-- Q17: revenue lost without small orders
SELECT sum(ol_amount) / 2.0 AS avg_yearly
FROM order_line, (SELECT i_id, avg(ol_quantity) AS a FROM item, order_line
                  WHERE i_data LIKE '%b' AND ol_i_id = i_id GROUP BY i_id) AS t
WHERE ol_i_id = t.i_id AND ol_quantity < t.a;

-- Q18: customers with large orders
SELECT c_last, c_id, o_id, o_entry_d, o_ol_cnt, sum(ol_amount) AS amount_sum
FROM customer, orders, order_line
WHERE c_id = o_c_id AND c_w_id = o_w_id AND c_d_id = o_d_id
  AND ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
GROUP BY o_id, o_w_id, o_d_id, c_id, c_last, o_entry_d, o_ol_cnt
HAVING sum(ol_amount) > 200
ORDER BY amount_sum DESC, o_entry_d
LIMIT 100;

-- Q19: revenue of some items at some prices and quantities
SELECT sum(ol_amount) AS revenue
FROM order_line, item
WHERE ol_i_id = i_id
  AND (i_data LIKE '%a' AND ol_quantity BETWEEN 1 AND 10 AND i_price BETWEEN 1 AND 400 AND ol_w_id IN (1, 2, 3)
    OR i_data LIKE '%b' AND ol_quantity BETWEEN 1 AND 10 AND i_price BETWEEN 1 AND 400 AND ol_w_id IN (1, 2, 4)
    OR i_data LIKE '%c' AND ol_quantity BETWEEN 1 AND 10 AND i_price BETWEEN 1 AND 400 AND ol_w_id IN (1, 5, 3));

-- Q20: a nation's suppliers with more than enough of what was ordered
SELECT su_name, su_address
FROM supplier, nation
WHERE su_suppkey IN (SELECT (s_i_id * s_w_id) % 10000
                     FROM stock JOIN (SELECT ol_i_id, sum(ol_quantity) AS ordered FROM order_line
                                      WHERE ol_delivery_d > timestamp '2010-05-23 12:00:00' GROUP BY ol_i_id) AS o
                          ON ol_i_id = s_i_id
                     WHERE s_i_id IN (SELECT i_id FROM item WHERE i_data LIKE 'co%') AND 2 * s_quantity > ordered)
  AND su_nationkey = n_nationkey AND n_name = 'Germany'
ORDER BY su_name;

-- Q21: a nation's suppliers that kept orders waiting
SELECT su_name, count(*) AS numwait
FROM supplier, order_line l1, orders, stock, nation
WHERE l1.ol_o_id = o_id AND l1.ol_w_id = o_w_id AND l1.ol_d_id = o_d_id
  AND l1.ol_w_id = s_w_id AND l1.ol_i_id = s_i_id AND (s_w_id * s_i_id) % 10000 = su_suppkey
  AND l1.ol_delivery_d > o_entry_d + interval '1 day'
  AND NOT EXISTS (SELECT 1 FROM order_line l2
                  WHERE l2.ol_o_id = l1.ol_o_id AND l2.ol_w_id = l1.ol_w_id AND l2.ol_d_id = l1.ol_d_id
                    AND l2.ol_delivery_d > l1.ol_delivery_d)
  AND su_nationkey = n_nationkey AND n_name = 'Germany'
GROUP BY su_name
ORDER BY numwait DESC, su_name;

-- Q22: customers of some states with a good balance and no orders
SELECT substr(c_state, 1, 1) AS country, count(*) AS numcust, sum(c_balance) AS totacctbal
FROM customer
WHERE substr(c_phone, 1, 1) IN ('1', '2', '3', '4', '5', '6', '7')
  AND c_balance > (SELECT avg(c_balance) FROM customer
                   WHERE c_balance > 0.00 AND substr(c_phone, 1, 1) IN ('1', '2', '3', '4', '5', '6', '7'))
  AND NOT EXISTS (SELECT 1 FROM orders WHERE o_c_id = c_id AND o_w_id = c_w_id AND o_d_id = c_d_id)
GROUP BY substr(c_state, 1, 1)
ORDER BY country;
