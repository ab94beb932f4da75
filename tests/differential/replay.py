"""What a plan takes, replayed on queues, with contention.

A lane is a FIFO queue: it runs its tasks in order, each as soon as the one before it has ended and all that it waits
for has ended. With contention a running task's remaining time passes at one over the product of the factors of the
lanes that run now; two lanes that own one network pass at a half each while both run; a stall is time that a task
loses each time that it and one of the other lane begin to run side by side.
"""


class Slowdown:
    """factor(task, other): how many times as long a task takes while the other runs; stall(task, other): lost once."""

    def __init__(self, factor, stall):
        self.factor, self.stall = factor, stall


def replay(lane_orders, after, seconds, slowdown=None):
    """Start and end of each task. lane_orders: tasks of each lane in order; after: what each task waits for."""
    if slowdown:
        return _fluid(lane_orders, after, seconds, slowdown)
    end, start = {}, {}
    position = [0] * len(lane_orders)
    free = [0.0] * len(lane_orders)
    left = sum(map(len, lane_orders))
    while left:
        moved = False
        for lane, order in enumerate(lane_orders):
            while position[lane] < len(order):
                task = order[position[lane]]
                if any(a not in end for a in after[task]):
                    break
                start[task] = max([free[lane]] + [end[a] for a in after[task]])
                end[task] = free[lane] = start[task] + seconds[task]
                position[lane] += 1
                left -= 1
                moved = True
        assert moved, "the lanes wait for each other"
    return start, end


def _fluid(lane_orders, after, seconds, slowdown):
    lanes = range(len(lane_orders))
    position = [0] * len(lane_orders)
    running, remaining = {}, {}
    start, end = {}, {}
    now = 0.0
    while True:
        begun = True
        while begun:  # tasks of no length end at once and let others begin
            begun = False
            for lane in lanes:
                if lane in running or position[lane] == len(lane_orders[lane]):
                    continue
                task = lane_orders[lane][position[lane]]
                if any(a not in end for a in after[task]):
                    continue
                start[task] = now
                position[lane] += 1
                begun = True
                if seconds[task] == 0:
                    end[task] = now
                    continue
                for other in running:
                    remaining[other] += slowdown.stall(running[other], task)
                remaining[lane] = seconds[task] + sum(slowdown.stall(task, o) for o in running.values())
                running[lane] = task
        if not running:
            assert len(end) == sum(map(len, lane_orders)), "the lanes wait for each other"
            return start, end
        slow = {}
        for lane in running:
            slow[lane] = 1.0
            for other in running:
                if other != lane:
                    slow[lane] *= slowdown.factor(running[lane], running[other])
        step = min(remaining[lane] * slow[lane] for lane in running)
        now += step
        for lane in list(running):
            took = remaining[lane] * slow[lane]
            if took <= step * (1 + 1e-13):
                end[running.pop(lane)] = now
            else:
                remaining[lane] -= step / slow[lane]


def makespan(end):
    return max(end.values(), default=0.0)


def interleave(lane_orders, after, seconds, lane, pieces, may_send):
    """Where pieces of gradients go on a lane whose other tasks go first: the lane's new order.

    A piece begins whenever the lane is idle and its next task is not ready; a task that becomes ready meanwhile waits
    for the piece. may_send(next task of the lane or None) says whether the schedule allows one now.
    """
    position = [0] * len(lane_orders)
    busy, end, order, waiting = {}, {}, [], list(pieces)
    now = 0.0
    while True:
        begun = True
        while begun:
            begun = False
            for i, tasks in enumerate(lane_orders):
                if i in busy or position[i] == len(tasks):
                    continue
                task = tasks[position[i]]
                if any(end.get(a, now + 1) > now for a in after[task]):
                    continue
                position[i] += 1
                begun = True
                end[task] = now + seconds[task]
                if i == lane:
                    order.append(task)
                if seconds[task]:
                    busy[i] = end[task]
        if lane not in busy and waiting:
            left = lane_orders[lane][position[lane]:]
            if may_send(left):
                piece = waiting.pop(0)
                order.append(piece)
                end[piece] = now + seconds[piece]
                busy[lane] = end[piece]
                continue
        if not busy:
            return order
        now = min(busy.values())
        busy = {i: e for i, e in busy.items() if e > now}
