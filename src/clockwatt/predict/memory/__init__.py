"""Peak memory of a pass: sizes of workspaces, the caching allocator, and the estimate with its interval."""
