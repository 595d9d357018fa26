//! Profiles of published or described hardware, for what-if planning; never measured here.
//!
//! An [`Accelerator`] is described by data sheets and papers: CoreMark scores, memory, rates of flash and link. The
//! rates of operators follow from the scores, as shares of those of a usual core, which is a rough guess: it takes all
//! work to slow down alike. Unpublished figures are assumed, and the profile says so in a remark.

use super::{Figure, LinkProfile, Origin, Profile, SideProfile};

/// CoreMark iterations a second of one core whose figures are the assumed ones.
const USUAL_COREMARK: f64 = 30_000.0;

/// One side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SideDescription {
    /// Cores that run plans or fragments.
    pub cores: u32,
    /// CoreMark iterations a second of one core.
    pub coremark: f64,
    /// Bytes that operators may use.
    pub memory_bytes: u64,
}

/// A device, the host it was used with, and their link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Accelerator {
    /// Its name in settings and output.
    pub name: &'static str,
    /// Where the figures are published.
    pub source: &'static str,
    /// The host.
    pub host: SideDescription,
    /// The device.
    pub device: SideDescription,
    /// Bytes a second that the device reads of its media.
    pub media_read: f64,
    /// Blocks a second that it reads at random places.
    pub media_read_random: f64,
    /// Bytes a second that it writes to its media.
    pub media_write: f64,
    /// Bytes a second over the link.
    pub link_bytes_per_second: f64,
    /// Seconds from a command to its answer.
    pub round_trip_s: f64,
    /// Which of these figures were not published.
    pub assumed: &'static str,
}

/// The devices of the papers that Cleave is built from.
pub const PUBLISHED: [Accelerator; 3] = [
    Accelerator {
        name: "cosmos-plus",
        source: "hybridNDP, section 5: Zynq 7045, one ARM A9 of 667 MHz for NDP, PCIe 2.0 x8; host i5 of 3.4 GHz",
        host: SideDescription { cores: 4, coremark: 92_343.0 / 4.0, memory_bytes: 4 << 30 },
        device: SideDescription { cores: 1, coremark: 2964.0, memory_bytes: 400 << 20 },
        media_read: 1.2e9,
        media_read_random: 4e4,
        media_write: 3e8,
        link_bytes_per_second: 4e9,
        round_trip_s: 5e-5,
        assumed: "rates of flash and the round trip",
    },
    Accelerator {
        name: "alveo-u280",
        source: "update NDP, section 8.1 and Table 1: 8 MicroBlaze of 180 MHz, emulated NVM of 10 GiB/s, CCIX over \
            PCIe 3.0 \
                 x16; host Neoverse N1 of 2.6 GHz",
        host: SideDescription { cores: 4, coremark: 79_417.0 / 4.0, memory_bytes: 16 << 30 },
        device: SideDescription { cores: 8, coremark: 374.0, memory_bytes: 8 << 30 },
        media_read: 10_737_418_240.0,
        media_read_random: 2.6e6,
        media_write: 10_737_418_240.0,
        link_bytes_per_second: 15.75e9,
        round_trip_s: 1e-6,
        assumed: "blocks a second at random places, the rate of writes and the round trip",
    },
    Accelerator {
        name: "smartssd",
        source: "CORD, sections III and VI: Kintex KU15P between flash and PCIe 3.0 x4; client i5-7500 of 3.4 GHz, 1 \
            Gbit \
                 Ethernet to its storage node",
        host: SideDescription { cores: 4, coremark: 92_343.0 / 4.0, memory_bytes: 16 << 30 },
        device: SideDescription { cores: 2, coremark: 3000.0, memory_bytes: 4 << 30 },
        media_read: 3e9,
        media_read_random: 2e5,
        media_write: 1e9,
        link_bytes_per_second: 1.18e8,
        round_trip_s: 2e-4,
        assumed: "what its FPGA computes (two soft cores), rates of flash, memory sizes and the round trip",
    },
];

impl Accelerator {
    /// The published one of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        PUBLISHED.iter().find(|accelerator| accelerator.name == name)
    }

    /// Its profile.
    pub fn profile(&self) -> Profile {
        let side = |side: &SideDescription| {
            SideProfile::scaled(side.coremark / USUAL_COREMARK, side.cores, side.memory_bytes)
        };
        let mut device = side(&self.device);
        device.set(Figure::MediaReadSequential, self.media_read);
        device.set(Figure::MediaReadRandom, self.media_read_random);
        device.set(Figure::MediaWriteSequential, self.media_write);
        device.remarks.push(format!("from {}", self.source));
        device.remarks.push(format!("assumed, not published: {}", self.assumed));
        let link = LinkProfile {
            origin: Origin::Described,
            is_embedded: false,
            round_trip_s: self.round_trip_s,
            bytes_per_second: self.link_bytes_per_second,
            handshakes: Vec::new(),
        };
        Profile { host: side(&self.host), device, link }
    }
}

#[cfg(test)]
mod tests {
    //! The ratios that the papers print.

    use super::{Accelerator, PUBLISHED};
    use crate::profile::{Figure, SideProfile};

    /// What all cores of a side sort in a second.
    fn sorted(side: &SideProfile) -> f64 {
        side.rate(Figure::Sort) * side.cores_together
    }

    #[test]
    fn hosts_are_as_much_stronger_as_published() {
        for (name, ratio) in [("cosmos-plus", 31.2), ("alveo-u280", 26.5)] {
            let profile = Accelerator::named(name).unwrap().profile();
            let found = sorted(&profile.host) / sorted(&profile.device);
            assert!((found / ratio - 1.0).abs() < 0.01, "{name}: {found}");
        }
    }

    #[test]
    fn each_says_where_it_is_from_and_has_a_name_of_its_own() {
        for accelerator in &PUBLISHED {
            assert_eq!(Accelerator::named(accelerator.name), Some(accelerator));
            assert_eq!(accelerator.profile().device.remarks.len(), 2);
        }
        assert_eq!(Accelerator::named("none"), None);
    }
}
