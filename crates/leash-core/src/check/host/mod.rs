//! A host, tested: leash stands in for its servers.
