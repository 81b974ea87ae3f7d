class Taskset:
    pass
