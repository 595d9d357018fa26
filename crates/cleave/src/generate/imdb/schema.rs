//! The 21 tables: their `CREATE TABLE` text, and the Arrow schemas parsed from it, so that the two cannot disagree.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

/// The statements that create the tables, in load order.
pub(crate) const SQL: &str = include_str!("schema.sql");

/// A table of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    KindType,
    InfoType,
    RoleType,
    LinkType,
    CompanyType,
    CompCastType,
    Keyword,
    CompanyName,
    CharName,
    Name,
    Title,
    AkaName,
    AkaTitle,
    PersonInfo,
    MovieKeyword,
    MovieCompanies,
    MovieInfoIdx,
    CompleteCast,
    MovieLink,
    MovieInfo,
    CastInfo,
}

impl Table {
    /// All tables, in load order: referenced tables come earlier.
    pub(crate) const ALL: [Self; 21] = [
        Self::KindType,
        Self::InfoType,
        Self::RoleType,
        Self::LinkType,
        Self::CompanyType,
        Self::CompCastType,
        Self::Keyword,
        Self::CompanyName,
        Self::CharName,
        Self::Name,
        Self::Title,
        Self::AkaName,
        Self::AkaTitle,
        Self::PersonInfo,
        Self::MovieKeyword,
        Self::MovieCompanies,
        Self::MovieInfoIdx,
        Self::CompleteCast,
        Self::MovieLink,
        Self::MovieInfo,
        Self::CastInfo,
    ];

    /// The table's name in SQL.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::KindType => "kind_type",
            Self::InfoType => "info_type",
            Self::RoleType => "role_type",
            Self::LinkType => "link_type",
            Self::CompanyType => "company_type",
            Self::CompCastType => "comp_cast_type",
            Self::Keyword => "keyword",
            Self::CompanyName => "company_name",
            Self::CharName => "char_name",
            Self::Name => "name",
            Self::Title => "title",
            Self::AkaName => "aka_name",
            Self::AkaTitle => "aka_title",
            Self::PersonInfo => "person_info",
            Self::MovieKeyword => "movie_keyword",
            Self::MovieCompanies => "movie_companies",
            Self::MovieInfoIdx => "movie_info_idx",
            Self::CompleteCast => "complete_cast",
            Self::MovieLink => "movie_link",
            Self::MovieInfo => "movie_info",
            Self::CastInfo => "cast_info",
        }
    }

    /// The table called `name`, if there is one.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.name() == name)
    }

    /// The table's columns, as its `CREATE TABLE` text lists them.
    pub(crate) fn schema(self) -> SchemaRef {
        let head = format!("CREATE TABLE {} (", self.name());
        let body = SQL.split_once(&head).map_or("", |(_, rest)| rest);
        let body = body.split_once("\n);").map_or(body, |(body, _)| body);
        let fields: Vec<Field> = body
            .lines()
            .filter_map(|line| line.trim().split_once(' '))
            .map(|(name, rest)| {
                let data_type =
                    if rest.starts_with("integer") { DataType::Int32 } else { DataType::Utf8 };
                let required = rest.contains("NOT NULL") || rest.contains("PRIMARY KEY");
                Field::new(name, data_type, !required)
            })
            .collect();
        assert!(!fields.is_empty(), "no columns for {}", self.name());
        Arc::new(Schema::new(fields))
    }
}
