//! Whether a cut pays, by bytes over the link alone: the simple rule that `auto` starts with.
//!
//! Both plans read the same chunks from the media; only the bytes that cross differ. The cost models that know CPU,
//! media and stalls replace this.

/// The bytes that cross the link for one leaf, with and without a cut above it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CutWeight {
    /// Estimated bytes of the fragment's rows, and of those that are sent to it first.
    pub result_bytes: f64,
    /// Bytes of the column chunks that the scan reads.
    pub chunk_bytes: f64,
    /// Of these, bytes that the host's buffer pool holds.
    pub held_bytes: f64,
    /// Whether bytes cross a link at all: not where the device lives in the host's process.
    pub link_is_free: bool,
}

/// Decides for a leaf; the text says why.
pub fn weigh_cut(weight: &CutWeight) -> (bool, String) {
    let CutWeight { result_bytes, chunk_bytes, held_bytes, link_is_free } = *weight;
    if link_is_free {
        let mut text = "the device shares the host's memory: no bytes to save".to_owned();
        if held_bytes > 0.0 {
            text.push_str(&format!("; pool: {} of {}", bytes(held_bytes), bytes(chunk_bytes)));
        }
        return (false, text);
    }
    let host_bytes = (chunk_bytes - held_bytes).max(0.0);
    let pays = result_bytes < host_bytes;
    let held = if held_bytes > 0.0 {
        format!("; pool: {} of {}", bytes(held_bytes), bytes(chunk_bytes))
    } else {
        String::new()
    };
    let text = format!(
        "about {} of rows {} {} of column chunks to read{held}",
        bytes(result_bytes),
        if pays { "instead of" } else { "would cross, against" },
        bytes(host_bytes),
    );
    (pays, text)
}

fn bytes(count: f64) -> String {
    if count < 10_000.0 {
        format!("{count:.0} B")
    } else if count < 10_000_000.0 {
        format!("{:.0} kB", count / 1e3)
    } else {
        format!("{:.0} MB", count / 1e6)
    }
}

#[cfg(test)]
mod tests {
    //! The rule and its two exceptions.

    use super::*;

    const SELECTIVE: CutWeight =
        CutWeight { result_bytes: 1e3, chunk_bytes: 1e6, held_bytes: 0.0, link_is_free: false };

    #[test]
    fn selective_scan_is_cut() {
        assert!(weigh_cut(&SELECTIVE).0);
    }

    #[test]
    fn full_scan_is_not() {
        assert!(!weigh_cut(&CutWeight { result_bytes: 1.2e6, ..SELECTIVE }).0);
    }

    #[test]
    fn what_the_host_holds_is_the_hosts() {
        let (pays, why) = weigh_cut(&CutWeight { held_bytes: 1e6, ..SELECTIVE });
        assert!(!pays && why.contains("; pool: 1000 kB of 1000 kB"), "{why}");
    }

    #[test]
    fn no_link_no_cut() {
        assert!(!weigh_cut(&CutWeight { link_is_free: true, ..SELECTIVE }).0);
    }
}
