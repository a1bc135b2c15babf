"""What is fitted: forests on features, the law of the clock, and how they are stored."""
