//! ALTER TABLE and ALTER INDEX: the parser's tree in, [`Action`]s out, in the order of execution.
//!
//! A new column is read as in CREATE TABLE. Unsupported actions are refused here, by name.
//!
//! Source: PostgreSQL's manual, ALTER TABLE.

use cleave_catalog::error::{Error, Position, Result};
use cleave_store::{Column, ColumnType};
use datafusion::sql::sqlparser::ast::{self, Spanned};

use crate::statement::ddl::foreign_key::foreign_key;
use crate::statement::ddl::{
    GivenCheck, GivenForeignKey, GivenSequence, column_type, create_table, rules,
};
use crate::statement::names::{fold, position_of, table_name};
use crate::statement::parse::read_text;
use crate::statement::sequence::SequenceOptions;

/// ALTER TABLE.
#[derive(Debug, Clone, PartialEq)]
pub struct AlterTable {
    /// The table.
    pub table: String,
    /// A table that does not exist is no error.
    pub if_exists: bool,
    /// ALTER MATERIALIZED VIEW.
    pub is_materialized: bool,
    /// The actions, in order.
    pub actions: Vec<Action>,
    /// Where the table's name stands.
    pub position: Option<Position>,
}

/// One thing that ALTER TABLE does.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// ADD COLUMN.
    AddColumn {
        /// A column of the name that exists is no error, and stays.
        if_not_exists: bool,
        /// The column; its id is yet to be given.
        column: Box<Column>,
        /// Its keys.
        keys: Vec<Key>,
        /// Its checks; the columns that they name are not resolved yet.
        checks: Vec<GivenCheck>,
        /// Its foreign keys.
        foreign_keys: Vec<GivenForeignKey>,
        /// Its sequence, if it is SERIAL or an identity.
        sequence: Option<GivenSequence>,
    },
    /// DROP COLUMN.
    DropColumn {
        /// A column that does not exist is no error.
        if_exists: bool,
        /// The column.
        column: String,
        /// CASCADE: foreign keys of other tables that refer to it are dropped too.
        cascade: bool,
    },
    /// RENAME COLUMN.
    RenameColumn {
        /// The old name.
        from: String,
        /// The new name.
        to: String,
    },
    /// RENAME TO.
    RenameTable {
        /// The new name of the table.
        to: String,
    },
    /// RENAME CONSTRAINT.
    RenameConstraint {
        /// The old name.
        from: String,
        /// The new name.
        to: String,
    },
    /// ALTER COLUMN SET DEFAULT, DROP DEFAULT.
    SetDefault {
        /// The column.
        column: String,
        /// The default; None: DROP DEFAULT.
        default: Option<String>,
    },
    /// ALTER COLUMN SET NOT NULL, DROP NOT NULL.
    SetNotNull {
        /// The column.
        column: String,
        /// Whether it refuses NULL.
        not_null: bool,
    },
    /// ALTER COLUMN TYPE.
    SetType {
        /// The column.
        column: String,
        /// Its new type.
        column_type: ColumnType,
        /// USING: the new values; None: the assignment cast of the old ones.
        using: Option<String>,
    },
    /// ALTER COLUMN ADD GENERATED AS IDENTITY.
    AddIdentity {
        /// The column.
        column: String,
        /// GENERATED ALWAYS.
        is_always: bool,
        /// Options of its sequence.
        options: Box<SequenceOptions>,
        /// The name of its sequence.
        name: Option<String>,
    },
    /// ALTER COLUMN SET GENERATED, SET an option, RESTART.
    SetIdentity {
        /// The column.
        column: String,
        /// Whether it is to be GENERATED ALWAYS; None: unchanged.
        is_always: Option<bool>,
        /// Changes to its sequence.
        options: Box<SequenceOptions>,
    },
    /// ALTER COLUMN DROP IDENTITY.
    DropIdentity {
        /// The column.
        column: String,
        /// IF EXISTS: a column that is no identity is no error.
        if_exists: bool,
    },
    /// ADD PRIMARY KEY, ADD UNIQUE.
    AddKey {
        /// The constraint.
        key: Key,
        /// Its columns.
        columns: Vec<String>,
    },
    /// ADD CHECK; the columns that it names are not resolved yet.
    AddCheck(GivenCheck),
    /// ADD FOREIGN KEY.
    AddForeignKey(GivenForeignKey),
    /// VALIDATE CONSTRAINT.
    Validate {
        /// The constraint.
        name: String,
    },
    /// DROP CONSTRAINT.
    DropConstraint {
        /// A constraint that does not exist is no error.
        if_exists: bool,
        /// The constraint.
        name: String,
        /// CASCADE: foreign keys of other tables that refer to it are dropped too.
        cascade: bool,
    },
}

/// A PRIMARY KEY or UNIQUE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Whether it is the primary key.
    pub is_primary: bool,
    /// Its name, where one was given.
    pub name: Option<String>,
}

/// Reads ALTER TABLE.
///
/// # Errors
/// [`Error::Unsupported`] naming the action; those of a column's definition.
pub fn alter_table(statement: ast::AlterTable) -> Result<AlterTable> {
    let position = position_of(statement.name.span().start);
    let is_plain = statement.location.is_none()
        && statement.on_cluster.is_none()
        && statement.table_type.is_none();
    if !is_plain {
        return Err(Error::unsupported("this clause of ALTER TABLE").at(position));
    }
    let mut actions = Vec::with_capacity(statement.operations.len());
    for operation in statement.operations {
        read_actions(operation, &mut actions).map_err(|error| error.at(position))?;
    }
    let (table, if_exists) = (table_name(&statement.name)?, statement.if_exists);
    Ok(AlterTable { table, if_exists, is_materialized: false, actions, position })
}

fn read_actions(operation: ast::AlterTableOperation, actions: &mut Vec<Action>) -> Result<()> {
    use ast::AlterTableOperation as Ast;
    let unsupported = |text: String| Err(Error::unsupported(format!("ALTER TABLE ... {text}")));
    actions.push(match operation {
        Ast::AddColumn { if_not_exists, column_def, column_position: None, .. } => {
            added_column(&column_def, if_not_exists)?
        }
        Ast::DropColumn { column_names, if_exists, drop_behavior, .. } => {
            let cascade = drop_behavior == Some(ast::DropBehavior::Cascade);
            let columns = column_names.iter().map(fold);
            let drop = |column| Action::DropColumn { if_exists, column, cascade };
            actions.extend(columns.map(drop));
            return Ok(());
        }
        Ast::RenameColumn { old_column_name, new_column_name } => {
            Action::RenameColumn { from: fold(&old_column_name), to: fold(&new_column_name) }
        }
        Ast::RenameTable { table_name: ast::RenameTableNameKind::To(name) } => {
            Action::RenameTable { to: table_name(&name)? }
        }
        Ast::RenameConstraint { old_name, new_name } => {
            Action::RenameConstraint { from: fold(&old_name), to: fold(&new_name) }
        }
        Ast::AlterColumn { column_name, op } => altered_column(fold(&column_name), op)?,
        Ast::AddConstraint {
            constraint: ast::TableConstraint::ForeignKey(constraint),
            not_valid,
        } => {
            let key = foreign_key(None, &constraint, None, None)?;
            Action::AddForeignKey(GivenForeignKey { not_valid, ..key })
        }
        Ast::AddConstraint { constraint, not_valid: false } => added_key(&constraint)?,
        Ast::ValidateConstraint { name } => Action::Validate { name: fold(&name) },
        Ast::DropConstraint { if_exists, name, drop_behavior } => {
            let cascade = drop_behavior == Some(ast::DropBehavior::Cascade);
            Action::DropConstraint { if_exists, name: fold(&name), cascade }
        }
        other => return unsupported(other.to_string()),
    });
    Ok(())
}

fn altered_column(column: String, operation: ast::AlterColumnOperation) -> Result<Action> {
    use ast::AlterColumnOperation as Ast;
    Ok(match operation {
        Ast::SetNotNull => Action::SetNotNull { column, not_null: true },
        Ast::DropNotNull => Action::SetNotNull { column, not_null: false },
        Ast::SetDefault { value } => {
            let text = value.to_string();
            let default = Some(text).filter(|text| !text.eq_ignore_ascii_case("null"));
            Action::SetDefault { column, default }
        }
        Ast::DropDefault => Action::SetDefault { column, default: None },
        Ast::SetDataType { data_type, using, .. } => Action::SetType {
            column,
            column_type: column_type(&data_type)?,
            using: using.map(|using| using.to_string()),
        },
        // The first one is read elsewhere.
        Ast::AddGenerated { .. } => {
            let what = "ALTER TABLE of an identity, and something else, in one";
            return Err(Error::unsupported(what));
        }
    })
}

/// A column to be added, with its constraints: as CREATE TABLE has it.
fn added_column(definition: &ast::ColumnDef, if_not_exists: bool) -> Result<Action> {
    use ast::ColumnOption as Option;
    let is_known = |definition: &&ast::ColumnOptionDef| {
        !matches!(
            definition.option,
            Option::NotNull
                | Option::Null
                | Option::Default(_)
                | Option::PrimaryKey(_)
                | Option::Unique(_)
                | Option::Check(_)
                | Option::ForeignKey(_)
                | Option::Generated { .. }
                | Option::Collation(_)
        )
    };
    if let Some(other) = definition.options.iter().find(is_known) {
        let text = other.option.to_string();
        let what = text.split('(').next().unwrap_or_default().trim().to_owned();
        return Err(Error::unsupported(format!("ALTER TABLE ... ADD COLUMN with {what}")));
    }
    let text = format!("CREATE TABLE added ({definition})");
    let parsed = read_text(&text, |parser| parser.parse_statement());
    let Ok(ast::Statement::CreateTable(create)) = parsed else {
        return Err(Error::unsupported(format!("ALTER TABLE ... ADD COLUMN {definition}")));
    };
    let create = create_table(&create)?;
    let mut keys = Vec::new();
    if !create.schema.primary_key.is_empty() {
        keys.push(Key { is_primary: true, name: create.primary_key_name });
    }
    keys.extend(create.unique.into_iter().map(|(name, _)| Key { is_primary: false, name }));
    let (checks, sequence) = (create.checks, create.sequences.into_iter().next());
    let foreign_keys = create.foreign_keys;
    match create.schema.columns.into_iter().next() {
        Some(column) => {
            let column = Box::new(column);
            Ok(Action::AddColumn { if_not_exists, column, keys, checks, foreign_keys, sequence })
        }
        None => Err(Error::unsupported("ALTER TABLE ... ADD COLUMN of nothing")),
    }
}

fn added_key(constraint: &ast::TableConstraint) -> Result<Action> {
    let unsupported = || {
        let text = constraint.to_string();
        let what = text.split('(').next().unwrap_or_default().trim().to_owned();
        Error::unsupported(format!("ALTER TABLE ... ADD {what}"))
    };
    if let ast::TableConstraint::Check(check) = constraint {
        let written = rules::check(check.name.as_ref().map(fold), check, None)?;
        return Ok(Action::AddCheck(rules::unbound(written)));
    }
    let (is_primary, name, columns, is_plain) = match constraint {
        ast::TableConstraint::PrimaryKey(key) => {
            let is_plain = key.characteristics.is_none()
                && key.index_name.is_none()
                && key.index_type.is_none()
                && key.index_options.is_empty();
            (true, &key.name, &key.columns, is_plain)
        }
        ast::TableConstraint::Unique(key) => {
            let is_plain = key.characteristics.is_none()
                && key.index_name.is_none()
                && key.index_type.is_none()
                && key.index_options.is_empty()
                && key.nulls_distinct != ast::NullsDistinctOption::NotDistinct;
            (false, &key.name, &key.columns, is_plain)
        }
        _ => return Err(unsupported()),
    };
    let column = |column: &ast::IndexColumn| match &column.column.expr {
        ast::Expr::Identifier(name)
            if column.column.options == ast::OrderByOptions::default()
                && column.operator_class.is_none() =>
        {
            Ok(fold(name))
        }
        _ => Err(unsupported()),
    };
    let columns = columns.iter().map(column).collect::<Result<_>>()?;
    if !is_plain {
        return Err(unsupported());
    }
    Ok(Action::AddKey { key: Key { is_primary, name: name.as_ref().map(fold) }, columns })
}
