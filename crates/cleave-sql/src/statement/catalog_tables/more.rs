//! More tables of [`super`]: those of statistics, of the session and of what PostgreSQL alone has, and the wide ones of
//! `information_schema`.

use super::{Shape, empty, filled};

pub(super) const PG_CATALOG: &[Shape] = &[
    empty(
        "pg_available_extension_versions",
        "name:t version:t installed:b superuser:b trusted:b relocatable:b schema:t requires:T comment:t",
    ),
    empty("pg_available_extensions", "name:t default_version:t installed_version:t comment:t"),
    filled(
        "pg_cursors",
        "name:t statement:t is_holdable:b is_binary:b is_scrollable:b creation_time:z",
    ),
    empty("pg_largeobject", "loid:o pageno:i data:t"),
    filled("pg_get_keywords", "word:t catcode:t barelabel:b catdesc:t baredesc:t"),
    empty("pg_parameter_acl", "oid:o parname:t paracl:T"),
    empty(
        "pg_policies",
        "schemaname:t tablename:t policyname:t permissive:t roles:T cmd:t qual:t with_check:t",
    ),
    filled(
        "pg_prepared_statements",
        "name:t statement:t prepare_time:z parameter_types:T from_sql:b generic_plans:o custom_plans:o",
    ),
    empty("pg_prepared_xacts", "transaction:o gid:t prepared:z owner:t database:t"),
    empty("pg_replication_origin", "roident:o roname:t"),
    empty(
        "pg_replication_slots",
        "slot_name:t plugin:t slot_type:t datoid:o database:t temporary:b active:b active_pid:i xmin:o \
         catalog_xmin:o restart_lsn:t confirmed_flush_lsn:t wal_status:t safe_wal_size:o two_phase:b",
    ),
    empty("pg_rules", "schemaname:t tablename:t rulename:t definition:t"),
    filled(
        "pg_stat_all_indexes",
        "relid:o indexrelid:o schemaname:t relname:t indexrelname:t idx_scan:o idx_tup_read:o idx_tup_fetch:o",
    ),
    empty(
        "pg_stat_archiver",
        "archived_count:o last_archived_wal:t last_archived_time:z failed_count:o last_failed_wal:t \
         last_failed_time:z stats_reset:z",
    ),
    empty(
        "pg_stat_bgwriter",
        "checkpoints_timed:o checkpoints_req:o checkpoint_write_time:f checkpoint_sync_time:f \
         buffers_checkpoint:o buffers_clean:o maxwritten_clean:o buffers_backend:o buffers_backend_fsync:o \
         buffers_alloc:o stats_reset:z",
    ),
    filled(
        "pg_stat_database",
        "datid:o datname:t numbackends:i xact_commit:o xact_rollback:o blks_read:o blks_hit:o tup_returned:o \
         tup_fetched:o tup_inserted:o tup_updated:o tup_deleted:o conflicts:o temp_files:o temp_bytes:o \
         deadlocks:o checksum_failures:o checksum_last_failure:z blk_read_time:f blk_write_time:f session_time:f \
         active_time:f idle_in_transaction_time:f sessions:o sessions_abandoned:o sessions_fatal:o \
         sessions_killed:o stats_reset:z",
    ),
    empty(
        "pg_stat_database_conflicts",
        "datid:o datname:t confl_tablespace:o confl_lock:o confl_snapshot:o confl_bufferpin:o confl_deadlock:o",
    ),
    filled("pg_stat_gssapi", "pid:i gss_authenticated:b principal:t encrypted:b"),
    empty(
        "pg_stat_progress_analyze",
        "pid:i datid:o datname:t relid:o phase:t sample_blks_total:o sample_blks_scanned:o ext_stats_total:o \
         ext_stats_computed:o child_tables_total:o child_tables_done:o current_child_table_relid:o",
    ),
    empty(
        "pg_stat_progress_basebackup",
        "pid:i phase:t backup_total:o backup_streamed:o tablespaces_total:o tablespaces_streamed:o",
    ),
    empty(
        "pg_stat_progress_cluster",
        "pid:i datid:o datname:t relid:o command:t phase:t cluster_index_relid:o heap_tuples_scanned:o \
         heap_tuples_written:o heap_blks_total:o heap_blks_scanned:o index_rebuild_count:o",
    ),
    empty(
        "pg_stat_progress_copy",
        "pid:i datid:o datname:t relid:o command:t type:t bytes_processed:o bytes_total:o tuples_processed:o \
         tuples_excluded:o",
    ),
    empty(
        "pg_stat_progress_create_index",
        "pid:i datid:o datname:t relid:o index_relid:o command:t phase:t lockers_total:o lockers_done:o \
         current_locker_pid:o blocks_total:o blocks_done:o tuples_total:o tuples_done:o partitions_total:o \
         partitions_done:o",
    ),
    empty(
        "pg_stat_progress_vacuum",
        "pid:i datid:o datname:t relid:o phase:t heap_blks_total:o heap_blks_scanned:o heap_blks_vacuumed:o \
         index_vacuum_count:o max_dead_tuples:o num_dead_tuples:o",
    ),
    empty(
        "pg_stat_replication",
        "pid:i usesysid:o usename:t application_name:t client_addr:t client_hostname:t client_port:i \
         backend_start:z backend_xmin:o state:t sent_lsn:t write_lsn:t flush_lsn:t replay_lsn:t write_lag:t \
         flush_lag:t replay_lag:t sync_priority:i sync_state:t reply_time:z",
    ),
    empty(
        "pg_stat_replication_slots",
        "slot_name:t spill_txns:o spill_count:o spill_bytes:o stream_txns:o stream_count:o stream_bytes:o \
         total_txns:o total_bytes:o stats_reset:z",
    ),
    empty(
        "pg_stat_slru",
        "name:t blks_zeroed:o blks_hit:o blks_read:o blks_written:o blks_exists:o flushes:o truncates:o \
         stats_reset:z",
    ),
    filled(
        "pg_stat_ssl",
        "pid:i ssl:b version:t cipher:t bits:i client_dn:t client_serial:t issuer_dn:t",
    ),
    empty(
        "pg_stat_subscription",
        "subid:o subname:t pid:i relid:o received_lsn:t last_msg_send_time:z last_msg_receipt_time:z \
         latest_end_lsn:t latest_end_time:z",
    ),
    empty(
        "pg_stat_sys_indexes",
        "relid:o indexrelid:o schemaname:t relname:t indexrelname:t idx_scan:o idx_tup_read:o idx_tup_fetch:o",
    ),
    empty(
        "pg_stat_sys_tables",
        "relid:o schemaname:t relname:t seq_scan:o seq_tup_read:o idx_scan:o idx_tup_fetch:o n_tup_ins:o \
         n_tup_upd:o n_tup_del:o n_tup_hot_upd:o n_live_tup:o n_dead_tup:o n_mod_since_analyze:o \
         n_ins_since_vacuum:o last_vacuum:z last_autovacuum:z last_analyze:z last_autoanalyze:z vacuum_count:o \
         autovacuum_count:o analyze_count:o autoanalyze_count:o",
    ),
    empty(
        "pg_stat_user_functions",
        "funcid:o schemaname:t funcname:t calls:o total_time:f self_time:f",
    ),
    filled(
        "pg_stat_user_indexes",
        "relid:o indexrelid:o schemaname:t relname:t indexrelname:t idx_scan:o idx_tup_read:o idx_tup_fetch:o",
    ),
    empty(
        "pg_stat_wal",
        "wal_records:o wal_fpi:o wal_bytes:t wal_buffers_full:o wal_write:o wal_sync:o wal_write_time:f \
         wal_sync_time:f stats_reset:z",
    ),
    empty(
        "pg_stat_wal_receiver",
        "pid:i status:t receive_start_lsn:t receive_start_tli:i written_lsn:t flushed_lsn:t received_tli:i \
         last_msg_send_time:z last_msg_receipt_time:z latest_end_lsn:t latest_end_time:z slot_name:t \
         sender_host:t sender_port:i conninfo:t",
    ),
    empty(
        "pg_stat_xact_all_tables",
        "relid:o schemaname:t relname:t seq_scan:o seq_tup_read:o idx_scan:o idx_tup_fetch:o n_tup_ins:o \
         n_tup_upd:o n_tup_del:o n_tup_hot_upd:o",
    ),
    empty(
        "pg_stat_xact_user_tables",
        "relid:o schemaname:t relname:t seq_scan:o seq_tup_read:o idx_scan:o idx_tup_fetch:o n_tup_ins:o \
         n_tup_upd:o n_tup_del:o n_tup_hot_upd:o",
    ),
    filled(
        "pg_statio_all_indexes",
        "relid:o indexrelid:o schemaname:t relname:t indexrelname:t idx_blks_read:o idx_blks_hit:o",
    ),
    empty("pg_statio_all_sequences", "relid:o schemaname:t relname:t blks_read:o blks_hit:o"),
    filled(
        "pg_statio_all_tables",
        "relid:o schemaname:t relname:t heap_blks_read:o heap_blks_hit:o idx_blks_read:o idx_blks_hit:o \
         toast_blks_read:o toast_blks_hit:o tidx_blks_read:o tidx_blks_hit:o",
    ),
    empty(
        "pg_statio_sys_tables",
        "relid:o schemaname:t relname:t heap_blks_read:o heap_blks_hit:o idx_blks_read:o idx_blks_hit:o \
         toast_blks_read:o toast_blks_hit:o tidx_blks_read:o tidx_blks_hit:o",
    ),
    filled(
        "pg_statio_user_indexes",
        "relid:o indexrelid:o schemaname:t relname:t indexrelname:t idx_blks_read:o idx_blks_hit:o",
    ),
    empty("pg_statio_user_sequences", "relid:o schemaname:t relname:t blks_read:o blks_hit:o"),
    filled(
        "pg_statio_user_tables",
        "relid:o schemaname:t relname:t heap_blks_read:o heap_blks_hit:o idx_blks_read:o idx_blks_hit:o \
         toast_blks_read:o toast_blks_hit:o tidx_blks_read:o tidx_blks_hit:o",
    ),
    empty("pg_subscription_rel", "srsubid:o srrelid:o srsubstate:t srsublsn:t"),
    filled("pg_timezone_abbrevs", "abbrev:t utc_offset:t is_dst:b"),
    filled("pg_timezone_names", "name:t abbrev:t utc_offset:t is_dst:b"),
    empty("pg_ts_config_map", "mapcfg:o maptokentype:i mapseqno:i mapdict:o"),
    empty("pg_user_mapping", "oid:o umuser:o umserver:o umoptions:T"),
    empty("pg_user_mappings", "umid:o srvid:o srvname:t umuser:o usename:t umoptions:T"),
];

pub(super) const INFORMATION: &[Shape] = &[
    empty(
        "column_domain_usage",
        "domain_catalog:t domain_schema:t domain_name:t table_catalog:t table_schema:t table_name:t column_name:t",
    ),
    filled(
        "columns",
        "table_catalog:t table_schema:t table_name:t column_name:t ordinal_position:i column_default:t \
         is_nullable:t data_type:t character_maximum_length:i character_octet_length:i numeric_precision:i \
         numeric_precision_radix:i numeric_scale:i datetime_precision:i interval_type:t interval_precision:i \
         character_set_catalog:t character_set_schema:t character_set_name:t collation_catalog:t \
         collation_schema:t collation_name:t domain_catalog:t domain_schema:t domain_name:t udt_catalog:t \
         udt_schema:t udt_name:t scope_catalog:t scope_schema:t scope_name:t maximum_cardinality:i \
         dtd_identifier:t is_self_referencing:t is_identity:t identity_generation:t identity_start:t \
         identity_increment:t identity_maximum:t identity_minimum:t identity_cycle:t is_generated:t \
         generation_expression:t is_updatable:t",
    ),
    empty(
        "domain_constraints",
        "constraint_catalog:t constraint_schema:t constraint_name:t domain_catalog:t domain_schema:t \
         domain_name:t is_deferrable:t initially_deferred:t",
    ),
    empty(
        "domains",
        "domain_catalog:t domain_schema:t domain_name:t data_type:t character_maximum_length:i \
         character_octet_length:i character_set_catalog:t character_set_schema:t character_set_name:t \
         collation_catalog:t collation_schema:t collation_name:t numeric_precision:i numeric_precision_radix:i \
         numeric_scale:i datetime_precision:i interval_type:t interval_precision:i domain_default:t udt_catalog:t \
         udt_schema:t udt_name:t scope_catalog:t scope_schema:t scope_name:t maximum_cardinality:i \
         dtd_identifier:t",
    ),
    empty(
        "element_types",
        "object_catalog:t object_schema:t object_name:t object_type:t collection_type_identifier:t data_type:t \
         character_maximum_length:i character_octet_length:i character_set_catalog:t character_set_schema:t \
         character_set_name:t collation_catalog:t collation_schema:t collation_name:t numeric_precision:i \
         numeric_precision_radix:i numeric_scale:i datetime_precision:i interval_type:t interval_precision:i \
         domain_default:t udt_catalog:t udt_schema:t udt_name:t scope_catalog:t scope_schema:t scope_name:t \
         maximum_cardinality:i dtd_identifier:t",
    ),
    empty(
        "foreign_servers",
        "foreign_server_catalog:t foreign_server_name:t foreign_data_wrapper_catalog:t \
         foreign_data_wrapper_name:t foreign_server_type:t foreign_server_version:t authorization_identifier:t",
    ),
    empty(
        "foreign_tables",
        "foreign_table_catalog:t foreign_table_schema:t foreign_table_name:t foreign_server_catalog:t \
         foreign_server_name:t",
    ),
    empty(
        "parameters",
        "specific_catalog:t specific_schema:t specific_name:t ordinal_position:i parameter_mode:t is_result:t \
         as_locator:t parameter_name:t data_type:t character_maximum_length:i character_octet_length:i \
         character_set_catalog:t character_set_schema:t character_set_name:t collation_catalog:t \
         collation_schema:t collation_name:t numeric_precision:i numeric_precision_radix:i numeric_scale:i \
         datetime_precision:i interval_type:t interval_precision:i udt_catalog:t udt_schema:t udt_name:t \
         scope_catalog:t scope_schema:t scope_name:t maximum_cardinality:i dtd_identifier:t parameter_default:t",
    ),
    empty(
        "role_routine_grants",
        "grantor:t grantee:t specific_catalog:t specific_schema:t specific_name:t routine_catalog:t \
         routine_schema:t routine_name:t privilege_type:t is_grantable:t",
    ),
    empty(
        "routine_privileges",
        "grantor:t grantee:t specific_catalog:t specific_schema:t specific_name:t routine_catalog:t \
         routine_schema:t routine_name:t privilege_type:t is_grantable:t",
    ),
    empty(
        "routines",
        "specific_catalog:t specific_schema:t specific_name:t routine_catalog:t routine_schema:t routine_name:t \
         routine_type:t module_catalog:t module_schema:t module_name:t udt_catalog:t udt_schema:t udt_name:t \
         data_type:t character_maximum_length:i character_octet_length:i character_set_catalog:t \
         character_set_schema:t character_set_name:t collation_catalog:t collation_schema:t collation_name:t \
         numeric_precision:i numeric_precision_radix:i numeric_scale:i datetime_precision:i interval_type:t \
         interval_precision:i type_udt_catalog:t type_udt_schema:t type_udt_name:t scope_catalog:t scope_schema:t \
         scope_name:t maximum_cardinality:i dtd_identifier:t routine_body:t routine_definition:t external_name:t \
         external_language:t parameter_style:t is_deterministic:t sql_data_access:t is_null_call:t sql_path:t \
         schema_level_routine:t max_dynamic_result_sets:t is_user_defined_cast:t is_implicitly_invocable:t \
         security_type:t to_sql_specific_catalog:t to_sql_specific_schema:t to_sql_specific_name:t as_locator:t \
         created:t last_altered:t new_savepoint_level:t is_udt_dependent:t result_cast_from_data_type:t \
         result_cast_as_locator:t result_cast_char_max_length:i result_cast_char_octet_length:i \
         result_cast_char_set_catalog:t result_cast_char_set_schema:t result_cast_char_set_name:t \
         result_cast_collation_catalog:t result_cast_collation_schema:t result_cast_collation_name:t \
         result_cast_numeric_precision:i result_cast_numeric_precision_radix:i result_cast_numeric_scale:i \
         result_cast_datetime_precision:i result_cast_interval_type:t result_cast_interval_precision:i \
         result_cast_type_udt_catalog:t result_cast_type_udt_schema:t result_cast_type_udt_name:t \
         result_cast_scope_catalog:t result_cast_scope_schema:t result_cast_scope_name:t \
         result_cast_maximum_cardinality:i result_cast_dtd_identifier:t",
    ),
    filled(
        "schemata",
        "catalog_name:t schema_name:t schema_owner:t default_character_set_catalog:t \
         default_character_set_schema:t default_character_set_name:t sql_path:t",
    ),
    filled(
        "table_constraints",
        "constraint_catalog:t constraint_schema:t constraint_name:t table_catalog:t table_schema:t table_name:t \
         constraint_type:t is_deferrable:t initially_deferred:t enforced:t nulls_distinct:t",
    ),
    filled(
        "tables",
        "table_catalog:t table_schema:t table_name:t table_type:t self_referencing_column_name:t \
         reference_generation:t user_defined_type_catalog:t user_defined_type_schema:t user_defined_type_name:t \
         is_insertable_into:t is_typed:t commit_action:t",
    ),
    empty(
        "triggers",
        "trigger_catalog:t trigger_schema:t trigger_name:t event_manipulation:t event_object_catalog:t \
         event_object_schema:t event_object_table:t action_order:t action_condition:t action_statement:t \
         action_orientation:t action_timing:t action_reference_old_table:t action_reference_new_table:t \
         action_reference_old_row:t action_reference_new_row:t created:t",
    ),
    empty(
        "udt_privileges",
        "grantor:t grantee:t udt_catalog:t udt_schema:t udt_name:t privilege_type:t is_grantable:t",
    ),
    empty(
        "user_defined_types",
        "user_defined_type_catalog:t user_defined_type_schema:t user_defined_type_name:t \
         user_defined_type_category:t is_instantiable:t is_final:t ordering_form:t ordering_category:t \
         ordering_routine_catalog:t ordering_routine_schema:t ordering_routine_name:t reference_type:t \
         data_type:t character_maximum_length:i character_octet_length:i character_set_catalog:t \
         character_set_schema:t character_set_name:t collation_catalog:t collation_schema:t collation_name:t \
         numeric_precision:i numeric_precision_radix:i numeric_scale:i datetime_precision:i interval_type:t \
         interval_precision:i source_dtd_identifier:t ref_dtd_identifier:t",
    ),
];
