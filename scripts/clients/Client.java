import java.math.BigDecimal;
import java.sql.*;
import java.util.*;

/** JDBC: metadata, prepared statements, batches, rows in pieces. */
public class Client {
    static void check(boolean holds, Object found) {
        if (!holds) throw new AssertionError(found);
    }

    /** The values of a column of a result. */
    static List<String> values(ResultSet rows, String column) throws SQLException {
        List<String> found = new ArrayList<>();
        while (rows.next()) found.add(rows.getString(column));
        return found;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> e = System.getenv();
        String url = "jdbc:postgresql://" + e.get("PGHOST") + ":" + e.get("PGPORT") + "/" + e.get("PGDATABASE")
            + "?sslmode=require";
        try (Connection c = DriverManager.getConnection(url, e.get("PGUSER"), e.get("PGPASSWORD"))) {
            DatabaseMetaData m = c.getMetaData();
            check(values(m.getTables(null, null, "%", new String[] {"TABLE"}), "TABLE_NAME").contains("orders"),
                "tables");
            List<String> columns = values(m.getColumns(null, null, "customers", "%"), "COLUMN_NAME");
            check(columns.equals(List.of("id", "email", "born", "note")), columns);
            check(values(m.getPrimaryKeys(null, null, "customers"), "COLUMN_NAME").equals(List.of("id")), "key");
            List<String> indexes = values(m.getIndexInfo(null, null, "orders", false, false), "COLUMN_NAME");
            check(indexes.equals(List.of("id", "customer", "placed")), indexes);
            check(values(m.getSchemas(), "TABLE_SCHEM").contains("public"), "schemas");
            check(values(m.getCatalogs(), "TABLE_CAT").equals(List.of("shop")), "catalogs");
            check(values(m.getTypeInfo(), "TYPE_NAME").contains("numeric"), "types");
            check(values(m.getImportedKeys(null, null, "orders"), "FKTABLE_NAME").isEmpty(), "foreign keys");
            check(values(m.getImportedKeys(null, null, "visits"), "PKTABLE_NAME").equals(List.of("customers")),
                "what visits refer to");
            try (PreparedStatement p = c.prepareStatement("SELECT email, born FROM customers WHERE id = ?")) {
                for (int id = 1; id <= 10; id++) {
                    p.setInt(1, id);
                    ResultSet r = p.executeQuery();
                    check(r.next() && r.getString(1).equals("c" + id + "@example.org"), id);
                }
            }
            c.setAutoCommit(false);
            try (Statement s = c.createStatement()) {
                s.setFetchSize(10);
                check(values(s.executeQuery("SELECT id FROM orders"), "id").size() == 1000, "pieces");
            }
            c.commit();
            c.setAutoCommit(true);
            try (Statement s = c.createStatement()) {
                s.execute("DROP TABLE IF EXISTS by_jdbc");
                s.execute("CREATE TABLE by_jdbc (a int, b text, c timestamp, d numeric(10,2), e bytea, f boolean, "
                    + "g double precision)");
            }
            try (PreparedStatement p = c.prepareStatement("INSERT INTO by_jdbc VALUES (?, ?, ?, ?, ?, ?, ?)")) {
                for (int i = 0; i < 10; i++) {
                    p.setInt(1, i);
                    p.setString(2, "s" + i);
                    p.setTimestamp(3, new Timestamp(0));
                    p.setBigDecimal(4, new BigDecimal("1.25"));
                    p.setBytes(5, new byte[] {1, 2});
                    p.setBoolean(6, true);
                    p.setDouble(7, 1.5);
                    p.addBatch();
                }
                check(Arrays.stream(p.executeBatch()).sum() == 10, "batch");
            }
            try (Statement s = c.createStatement()) {
                ResultSet r = s.executeQuery("SELECT count(*), max(d) FROM by_jdbc");
                check(r.next() && r.getLong(1) == 10 && r.getBigDecimal(2).equals(new BigDecimal("1.25")), "rows");
            }
            System.out.println("JDBC " + m.getDriverVersion());
        }
    }
}
