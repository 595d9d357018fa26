//! The performance of a side: measured [`Figure`]s in units a second, and the [`LinkProfile`] between two sides.
//!
//! A [`SideProfile`] is a table of figures by name, so that measuring, sending, storing and printing need no code for
//! each. Figures of work are those of one partition of a fragment in wall-clock time, so a CPU quota is included. What
//! n partitions reach together is n times that only up to [`SideProfile::cores_together`].
//!
//! Source: hybridNDP, section 3.1, which measures memcpy, arithmetic, flash and handshakes; the operators' rates are
//! ours.

mod measure;
pub(crate) mod proto;

pub use measure::measure;

/// One measured figure of a side. The order is that of messages and files; new ones are only appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Bytes copied from memory to memory.
    Copy,
    /// Multiplications and additions of doubles.
    Arithmetic,
    /// Integers hashed.
    Hash,
    /// Integers compared with a constant.
    Compare,
    /// Texts of about 40 bytes matched with `LIKE '%…%'`.
    Pattern,
    /// Values of a bit-packed column decoded.
    DecodeInteger,
    /// Bytes of a text column decoded.
    DecodeText,
    /// Rows put into the hash table of a join.
    JoinBuild,
    /// Rows that probe such a table.
    JoinProbe,
    /// Rows added to a group by one key, for one aggregate.
    Aggregate,
    /// Rows sorted by one key.
    Sort,
    /// Bytes of rows written to slots.
    SlotEncode,
    /// Bytes of rows read from slots.
    SlotDecode,
    /// Bytes read from media in order, in large pieces.
    MediaReadSequential,
    /// Single blocks read from media in random order, several at a time.
    MediaReadRandom,
    /// Bytes written to media in order, in large pieces, and made durable.
    MediaWriteSequential,
    /// Single blocks written to media in random order, one after the other, and then made durable.
    MediaWriteRandom,
}

/// How many figures there are.
pub const FIGURE_COUNT: usize = Figure::ALL.len();

impl Figure {
    /// All of them, in order.
    pub const ALL: [Self; 17] = [
        Self::Copy,
        Self::Arithmetic,
        Self::Hash,
        Self::Compare,
        Self::Pattern,
        Self::DecodeInteger,
        Self::DecodeText,
        Self::JoinBuild,
        Self::JoinProbe,
        Self::Aggregate,
        Self::Sort,
        Self::SlotEncode,
        Self::SlotDecode,
        Self::MediaReadSequential,
        Self::MediaReadRandom,
        Self::MediaWriteSequential,
        Self::MediaWriteRandom,
    ];

    /// Its printed name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Arithmetic => "arithmetic",
            Self::Hash => "hash",
            Self::Compare => "compare",
            Self::Pattern => "pattern",
            Self::DecodeInteger => "decode integers",
            Self::DecodeText => "decode text",
            Self::JoinBuild => "join, build",
            Self::JoinProbe => "join, probe",
            Self::Aggregate => "aggregate",
            Self::Sort => "sort",
            Self::SlotEncode => "slot, encode",
            Self::SlotDecode => "slot, decode",
            Self::MediaReadSequential => "media, read in order",
            Self::MediaReadRandom => "media, read at random",
            Self::MediaWriteSequential => "media, write in order",
            Self::MediaWriteRandom => "media, write at random",
        }
    }

    /// Its unit, counted each second.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Copy
            | Self::DecodeText
            | Self::SlotEncode
            | Self::SlotDecode
            | Self::MediaReadSequential
            | Self::MediaWriteSequential => "bytes/s",
            Self::Arithmetic => "operations/s",
            Self::Hash | Self::Compare | Self::Pattern | Self::DecodeInteger => "values/s",
            Self::JoinBuild | Self::JoinProbe | Self::Aggregate | Self::Sort => "rows/s",
            Self::MediaReadRandom | Self::MediaWriteRandom => "blocks/s",
        }
    }

    /// Whether it is a figure of the media, not of a core.
    pub fn is_of_media(self) -> bool {
        self as usize >= Self::MediaReadSequential as usize
    }

    /// Values for one core of a present x86 server, and an SSD of a few years ago, used if nothing was measured.
    fn assumed(self) -> f64 {
        match self {
            Self::Copy => 8e9,
            Self::Arithmetic => 1e9,
            Self::Hash => 4e8,
            Self::Compare => 1e9,
            Self::Pattern => 2.5e7,
            Self::DecodeInteger => 5e8,
            Self::DecodeText => 1e9,
            Self::JoinBuild => 2e7,
            Self::JoinProbe => 4e7,
            Self::Aggregate => 5e7,
            Self::Sort => 1e7,
            Self::SlotEncode => 2e9,
            Self::SlotDecode => 4e9,
            Self::MediaReadSequential => 1.2e9,
            Self::MediaReadRandom => 8e4,
            Self::MediaWriteSequential => 5e8,
            Self::MediaWriteRandom => 2e4,
        }
    }
}

/// The origin of figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// They were measured on the side itself.
    Measured,
    /// They are typical values; nothing was measured.
    Assumed,
    /// They were derived from published hardware data, or given by a description.
    Described,
}

impl Origin {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Assumed => "assumed",
            Self::Described => "described",
        }
    }
}

/// The performance of one side.
#[derive(Debug, Clone, PartialEq)]
pub struct SideProfile {
    /// Where the figures come from.
    pub origin: Origin,
    /// Threads that run fragments, or plans.
    pub cores: u32,
    /// The throughput of `cores` partitions together, as a multiple of one alone: less than `cores` if they share a
    /// quota, caches or execution units.
    pub cores_together: f64,
    /// Bytes that operators may use; 0: unknown.
    pub memory_bytes: u64,
    /// By [`Figure::ALL`], in units a second; 0: not measured.
    figures: [f64; FIGURE_COUNT],
    /// What could not be measured, and why.
    pub remarks: Vec<String>,
}

impl SideProfile {
    /// A side of which no figure is known.
    pub fn unknown(origin: Origin, cores: u32, memory_bytes: u64) -> Self {
        let cores_together = f64::from(cores.max(1));
        let figures = [0.0; FIGURE_COUNT];
        Self { origin, cores, cores_together, memory_bytes, figures, remarks: Vec::new() }
    }

    /// A side of `cores` typical cores: plausible, not measured.
    pub fn assumed(cores: u32, memory_bytes: u64) -> Self {
        let figures = Figure::ALL.map(Figure::assumed);
        Self { figures, ..Self::unknown(Origin::Assumed, cores, memory_bytes) }
    }

    /// A side whose cores reach `share` of a typical core, with typical media.
    pub fn scaled(share: f64, cores: u32, memory_bytes: u64) -> Self {
        let mut side = Self::assumed(cores, memory_bytes);
        side.origin = Origin::Described;
        for figure in Figure::ALL.into_iter().filter(|figure| !figure.is_of_media()) {
            side.set(figure, figure.assumed() * share);
        }
        side
    }

    /// Units a second, if known.
    pub fn figure(&self, figure: Figure) -> Option<f64> {
        self.figures.get(figure as usize).copied().filter(|rate| *rate > 0.0)
    }

    /// Units a second; the assumed value if unknown.
    pub fn rate(&self, figure: Figure) -> f64 {
        self.figure(figure).unwrap_or_else(|| figure.assumed())
    }

    /// Sets units a second; a value that is not a positive number makes it unknown.
    pub fn set(&mut self, figure: Figure, rate: f64) {
        if let Some(place) = self.figures.get_mut(figure as usize) {
            *place = if rate.is_finite() && rate > 0.0 { rate } else { 0.0 };
        }
    }

    /// The same with another figure.
    #[must_use]
    pub fn with(mut self, figure: Figure, rate: f64) -> Self {
        self.set(figure, rate);
        self
    }
}

/// The performance of the link between host and device.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkProfile {
    /// Where the figures come from.
    pub origin: Origin,
    /// The device is in the host's process: bytes cost nothing, and both share cores and memory.
    pub is_embedded: bool,
    /// Seconds from the shortest command to its answer.
    pub round_trip_s: f64,
    /// Bytes a second from device to host.
    pub bytes_per_second: f64,
    /// Seconds from a command to its answer, by the answer's bytes.
    pub handshakes: Vec<(u64, f64)>,
}

impl LinkProfile {
    /// 1 Gbit Ethernet over one switch: plausible, not measured.
    pub fn assumed() -> Self {
        Self {
            origin: Origin::Assumed,
            is_embedded: false,
            round_trip_s: 2e-4,
            bytes_per_second: 1.18e8,
            handshakes: Vec::new(),
        }
    }

    /// No link at all.
    pub fn embedded() -> Self {
        Self {
            origin: Origin::Described,
            is_embedded: true,
            round_trip_s: 0.0,
            bytes_per_second: f64::INFINITY,
            handshakes: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
