import jakarta.persistence.*;
import jakarta.persistence.Version;
import java.math.BigDecimal;
import java.time.*;
import java.util.*;
import java.util.function.*;
import org.hibernate.*;
import org.hibernate.annotations.DynamicUpdate;
import org.hibernate.annotations.NaturalId;
import org.hibernate.cfg.Configuration;

/** Hibernate ORM: makes, updates and validates its tables, then writes and queries entities. */
public class Shop {
    enum State { OPEN, PAID, SENT }

    @Embeddable
    public static class Address {
        String street;
        @Column(length = 20) String town;
    }

    @Entity(name = "Customer")
    @Table(name = "shop_customers", indexes = @Index(name = "by_town", columnList = "town, name desc"))
    public static class Customer {
        @Id @GeneratedValue(strategy = GenerationType.IDENTITY) Long id;
        @NaturalId @Column(nullable = false, length = 60) String email;
        @Column(columnDefinition = "text default 'nobody'") String name;
        @Embedded Address address = new Address();
        LocalDate born;
        boolean active;
        @ElementCollection @CollectionTable(name = "shop_phones") Set<String> phones = new HashSet<>();
        @OneToMany(mappedBy = "customer", cascade = CascadeType.ALL, orphanRemoval = true) @OrderBy("placed")
        List<Purchase> purchases = new ArrayList<>();
    }

    @Entity(name = "Purchase")
    @Table(name = "shop_purchases")
    @DynamicUpdate
    public static class Purchase {
        @Id @GeneratedValue(strategy = GenerationType.SEQUENCE) @SequenceGenerator(name = "shop_numbers") Long id;
        @Version int version;
        @ManyToOne(fetch = FetchType.LAZY, optional = false) Customer customer;
        @ManyToMany List<Item> items = new ArrayList<>();
        @Enumerated(EnumType.STRING) State state = State.OPEN;
        @Enumerated State before;
        @Column(precision = 12, scale = 2) BigDecimal total;
        Instant placed;
        LocalDateTime paid;
        OffsetDateTime due;
        LocalTime hour;
        Duration took;
        UUID number;
        byte[] receipt;
        @Column(length = 100000) String remarks;
    }

    @Entity(name = "Item")
    @Table(name = "shop_items")
    @Inheritance(strategy = InheritanceType.JOINED)
    public static class Item {
        @Id @GeneratedValue UUID id;
        @Column(unique = true) String title;
        double weight;
        short rank;
    }

    @Entity(name = "Book")
    @Table(name = "shop_books")
    public static class Book extends Item {
        int pages;
        Character grade;
    }

    static void check(boolean holds, Object found) {
        if (!holds) throw new AssertionError(found);
    }

    static SessionFactory factory(String ddl, Class<?>... entities) {
        Map<String, String> e = System.getenv();
        Configuration c = new Configuration();
        c.setProperty("hibernate.connection.url", "jdbc:postgresql://" + e.get("PGHOST") + ":" + e.get("PGPORT") + "/"
            + e.get("PGDATABASE") + "?sslmode=" + e.getOrDefault("PGSSLMODE", "prefer"));
        c.setProperty("hibernate.connection.username", e.get("PGUSER"));
        c.setProperty("hibernate.connection.password", e.getOrDefault("PGPASSWORD", ""));
        c.setProperty("hibernate.hbm2ddl.auto", ddl);
        c.setProperty("hibernate.hbm2ddl.halt_on_error", "true");
        c.setProperty("hibernate.jdbc.batch_size", "20");
        c.setProperty("hibernate.show_sql", e.getOrDefault("SHOW_SQL", "false"));
        for (Class<?> entity : entities) c.addAnnotatedClass(entity);
        return c.buildSessionFactory();
    }

    static final Class<?>[] ALL = {Customer.class, Purchase.class, Item.class, Book.class};

    static void fill(Session s) {
        for (int i = 1; i <= 30; i++) {
            Customer c = new Customer();
            c.email = "c" + i + "@example.org";
            c.name = "Name " + i;
            c.address.street = "Street";
            c.address.town = "Town " + i % 3;
            c.born = LocalDate.of(2000, 1, i);
            c.active = i % 2 == 0;
            c.phones.addAll(List.of("1-" + i, "2-" + i));
            for (int j = 0; j < 3; j++) {
                Purchase p = new Purchase();
                p.customer = c;
                p.total = BigDecimal.valueOf(i * 100 + j, 2);
                p.placed = Instant.parse("2024-01-0" + (j + 1) + "T00:00:00Z");
                p.paid = LocalDateTime.of(2024, 1, 2, 3, 4, 5, 678_000_000);
                p.due = OffsetDateTime.parse("2024-02-01T03:00:00Z");
                p.hour = LocalTime.of(1, 2, 3);
                p.took = Duration.ofSeconds(90);
                p.number = new UUID(i, j);
                p.receipt = new byte[] {0, (byte) i};
                p.before = State.PAID;
                c.purchases.add(p);
            }
            s.persist(c);
        }
        Item engine = new Item();
        engine.title = "Engine";
        engine.weight = 1.5;
        Book book = new Book();
        book.title = "Notes";
        book.pages = 66;
        book.grade = 'a';
        s.persist(engine);
        s.persist(book);
        s.flush();
        Purchase first = s.createQuery("from Purchase order by id", Purchase.class).setMaxResults(1).getSingleResult();
        first.items.addAll(List.of(engine, book));
    }

    static <T> List<T> list(Session s, String hql, Class<T> type, Object... values) {
        var query = s.createQuery(hql, type);
        for (int i = 0; i < values.length; i++) query.setParameter(i + 1, values[i]);
        return query.getResultList();
    }

    static void queries(Session s) {
        Customer seventh = s.bySimpleNaturalId(Customer.class).load("c7@example.org");
        check(seventh.phones.equals(Set.of("1-7", "2-7")) && seventh.purchases.size() == 3, seventh.phones);
        Purchase p = seventh.purchases.get(1);
        check(p.total.equals(new BigDecimal("7.01")) && p.took.getSeconds() == 90 && p.number.equals(new UUID(7, 1))
            && p.receipt[1] == 7 && p.hour.equals(LocalTime.of(1, 2, 3)) && p.before == State.PAID
            && p.paid.getNano() == 678_000_000 && p.placed.equals(Instant.parse("2024-01-02T00:00:00Z"))
            && p.due.toInstant().equals(Instant.parse("2024-02-01T03:00:00Z")), p);
        var page = s.createQuery("from Customer c where c.email like :email order by c.born desc, c.id", Customer.class)
            .setParameter("email", "%@example.org").setFirstResult(10).setMaxResults(5);
        check(page.getResultList().get(0).born.getDayOfMonth() == 20 && page.getResultCount() == 30, "page");
        check(list(s, "select count(*) from Purchase p where p.customer.address.town = ?1 and p.state in ?2",
            Long.class, "Town 1", List.of(State.OPEN, State.PAID)).equals(List.of(30L)), "count");
        check(list(s, "select distinct c from Customer c join fetch c.purchases where c.id <= ?1 order by c.id",
            Customer.class, 3).size() == 3, "fetch");
        List<Object[]> towns = list(s, "select c.address.town, count(p), sum(p.total), max(p.placed) from Customer c "
            + "left join c.purchases p group by c.address.town having count(p) > ?1 order by 3 desc",
            Object[].class, 1);
        check(towns.size() == 3 && towns.get(0)[2].equals(new BigDecimal("495.30")), towns.get(0)[2]);
        check(list(s, "select c.name from Customer c where exists (select 1 from c.purchases p where p.total > ?1) "
            + "and year(c.born) = 2000 and c.name || '!' like '%0!'", String.class, new BigDecimal("25"))
            .equals(List.of("Name 30")), "exists");
        check(list(s, "select upper(substring(c.name, 1, 4)) || cast(extract(day from c.born) as string) "
            + "from Customer c where lower(c.email) = ?1", String.class, "c9@example.org")
            .equals(List.of("NAME9")), "functions");
        check(list(s, "select row_number() over (partition by c.active order by c.id desc) from Customer c "
            + "order by c.id",
            Long.class).get(29) == 1, "windows");
        check(list(s, "with dear as (select p.customer.id as customer, sum(p.total) as spent from Purchase p "
            + "group by p.customer.id) select d.spent from dear d where d.spent > ?1 order by d.spent",
            BigDecimal.class, new BigDecimal("89")).equals(List.of(new BigDecimal("90.03"))), "with");
        check(list(s, "select coalesce(nullif(c.name, ?1), 'none') from Customer c where c.id = 1", String.class,
            "Name 1").equals(List.of("none")), "nullif");
        check(list(s, "select case when c.active then ?1 else ?2 end from Customer c where c.id = 2", String.class,
            "yes", "no").equals(List.of("yes")), "case");
        check(list(s, "from Item order by title", Item.class).get(1) instanceof Book, "inheritance");
        check(list(s, "select i.title from Purchase p join p.items i where treat(i as Book).pages > ?1", String.class,
            60).equals(List.of("Notes")), "treat");
        check(list(s, "from Purchase p where p.placed between ?1 and ?2 and p.customer.id = 3", Purchase.class,
            Instant.parse("2024-01-01T12:00:00Z"), Instant.parse("2024-01-03T00:00:00Z")).size() == 2, "between");
        check(list(s, "select c.id from Customer c where c.id < 5 union all select p.customer.id from Purchase p "
            + "where p.total < ?1", Long.class, new BigDecimal("1.01")).size() == 5, "union");
        var b = s.getCriteriaBuilder();
        var q = b.createQuery(Customer.class);
        var root = q.from(Customer.class);
        q.where(b.or(b.equal(root.get("active"), true), b.isEmpty(root.get("purchases"))))
            .orderBy(b.asc(root.get("id")));
        check(s.createQuery(q).getResultList().size() == 15, "criteria");
        check(s.createNativeQuery("select * from shop_customers where id = :id", Customer.class).setParameter("id", 4)
            .getSingleResult().email.equals("c4@example.org"), "native");
        try (var rows = s.createQuery("from Purchase order by id", Purchase.class).setFetchSize(10).scroll()) {
            int count = 0;
            while (rows.next()) count++;
            check(count == 90, count);
        }
    }

    static void changes(SessionFactory f) {
        f.inTransaction(s -> {
            Purchase p = list(s, "from Purchase p join fetch p.customer order by p.id", Purchase.class).get(0);
            p.state = State.SENT;
            p.items.removeIf(item -> item instanceof Book);
            p.customer.phones.add("3-1");
            p.customer.purchases.remove(2);
            s.flush();
            check(p.version == 2, p.version);
        });
        // Two sessions with the same version of a row.
        try (Session one = f.openSession(); Session other = f.openSession()) {
            one.beginTransaction();
            Purchase mine = list(one, "from Purchase where total = 5.01", Purchase.class).get(0);
            f.inTransaction(s -> s.find(Purchase.class, mine.id).state = State.PAID);
            mine.total = BigDecimal.TEN;
            try {
                one.getTransaction().commit();
                throw new AssertionError("a lost update");
            } catch (OptimisticLockException expected) {
                check(expected.getMessage().contains("Purchase"), expected);
            }
        }
        f.inTransaction(s -> {
            Customer locked = s.find(Customer.class, 1L, LockModeType.PESSIMISTIC_WRITE);
            check(locked.id == 1, locked.id);
            f.inTransaction(other -> check(other.createQuery("from Customer where id < 4 order by id", Customer.class)
                .setHibernateLockMode(LockMode.UPGRADE_SKIPLOCKED).getResultList().size() == 2, "skip locked"));
            f.inTransaction(other -> {
                try {
                    other.createQuery("from Customer where id = 1", Customer.class)
                        .setHibernateLockMode(LockMode.UPGRADE_NOWAIT).getResultList();
                    throw new AssertionError("the lock was given twice");
                } catch (PersistenceException expected) {
                    other.getTransaction().setRollbackOnly();
                }
            });
        });
        try {
            f.inTransaction(s -> {
                Customer again = new Customer();
                again.email = "c1@example.org";
                s.persist(again);
            });
            throw new AssertionError("a key twice");
        } catch (org.hibernate.exception.ConstraintViolationException expected) {
            check(expected.getConstraintName() != null && expected.getSQLState().equals("23505"), expected);
        }
        f.inTransaction(s -> {
            check(s.createMutationQuery("update Purchase set total = total + ?1 where customer.id in (select c.id from "
                + "Customer c where c.active)").setParameter(1, BigDecimal.ONE).executeUpdate() == 45, "update");
            check(s.createMutationQuery("update versioned Purchase p set p.state = ?1 where p.total < 3")
                .setParameter(1, State.SENT).executeUpdate() > 0, "versioned");
            check(s.createMutationQuery("update Book set pages = pages + 1, title = 'Notes 2' where pages = 66")
                .executeUpdate() == 1, "of two tables");
            check(s.createMutationQuery("insert into Customer (email, name, active) select concat(c.email, 'x'), "
                + "c.name, true from Customer c where c.id <= 5").executeUpdate() == 5, "insert");
            check(s.createMutationQuery("insert into Customer (email, active) values ('c1@example.org', true) "
                + "on conflict (email) do update set name = 'twice'").executeUpdate() == 1, "conflict");
            check(s.createMutationQuery("delete from Customer where email like '%x'").executeUpdate() == 5, "delete");
            check(s.createMutationQuery("delete from Book where pages = 67").executeUpdate() == 1, "two deletes");
        });
        try (StatelessSession s = f.openStatelessSession()) {
            s.beginTransaction();
            Item item = new Item();
            item.title = "Wheel";
            s.insert(item);
            item.weight = 2;
            s.update(item);
            s.delete(item);
            s.getTransaction().commit();
        }
        f.inTransaction(s -> s.remove(s.find(Customer.class, 2L)));
        f.inTransaction(s -> check(list(s, "select count(*) from Purchase", Long.class).get(0) == 86, "left"));
    }

    /** The first tables again, with more columns. */
    @Entity(name = "Customer")
    @Table(name = "shop_customers", indexes = @Index(name = "by_born", columnList = "born"))
    public static class LaterCustomer {
        @Id @GeneratedValue(strategy = GenerationType.IDENTITY) Long id;
        @NaturalId @Column(nullable = false, length = 60) String email;
        @ManyToOne LaterCustomer friend;
        Float score;
        @Column(unique = true) Integer place;
    }

    public static void main(String[] arguments) {
        java.util.logging.Logger.getLogger("org.hibernate").setLevel(java.util.logging.Level.SEVERE);
        try (SessionFactory f = factory("create", ALL)) {
            f.inTransaction(Shop::fill);
            f.inTransaction(Shop::queries);
            changes(f);
        }
        factory("validate", ALL).close();
        factory("update", ALL).close();
        try (SessionFactory f = factory("update", LaterCustomer.class)) {
            f.inTransaction(s -> {
                LaterCustomer c = s.find(LaterCustomer.class, 1L);
                c.score = 1.5f;
                c.friend = s.find(LaterCustomer.class, 3L);
            });
        }
        factory("validate", LaterCustomer.class).close();
        factory("create-drop", ALL).close();
        System.out.println("Hibernate " + org.hibernate.Version.getVersionString());
    }
}
