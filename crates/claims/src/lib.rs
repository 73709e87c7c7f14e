//! The nouns of Conductor, pure: matching, scoring, lifecycle, pool planning, review: snapshot in, decisions out.
