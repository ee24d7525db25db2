"""Who does the work: the schedule, the pool, the foreman and its workers."""
