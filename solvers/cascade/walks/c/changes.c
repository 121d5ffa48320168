/* Changes of list schedules: changes.py in C. */

#include "walks.h"

/* Shares of changes and slack: see changes.py. */
static const double OF_DEGREES = 0.5, OF_SITES = 0.5, ANY_NODE = 0.6, OF_TASKS = 0.8;
static const double DRAWN = 0.5, NEXT = 0.5, CLOSE = 0.8, FOCUS = 0.75, TWO = 0.5, SLACK = 0.002;
static const int32_t REACH = 4;

/* Tasks that would delay the end if they ended but a little later, the last first. */
static void find_late(Walker *w)
{
    const Problem *p = w->problem;
    const Listing *l = &w->now;
    const int64_t end_us = sums(l)->makespan_us;
    const double least_us = (double)end_us * SLACK;
    for (int32_t k = 0; k < w->slot_count; k++)
        w->need_us[k] = end_us;
    w->late_count = 0;
    for (int32_t k = l->count - 1; k >= 0; k--) {
        const int32_t i = l->order[k];
        const int32_t *nodes = l->group_node + (int64_t)i * p->longest_group;
        const Mask *masks = l->group_mask + (int64_t)i * p->longest_group;
        int64_t latest = end_us;
        for (int32_t x = 0; x < p->tasks[i].successor_count; x++)
            if (w->task_start_us[p->tasks[i].successors[x]] < latest)
                latest = w->task_start_us[p->tasks[i].successors[x]];
        for (int32_t g = 0; g < l->group_size[i]; g++) {
            const int64_t *need_us = w->need_us + (int64_t)w->row_of_node[nodes[g]] * p->widest;
            for (Mask left = masks[g]; left; left &= left - 1)
                if (need_us[__builtin_ctzll(left)] < latest)
                    latest = need_us[__builtin_ctzll(left)];
        }
        if ((double)(latest - l->ends_us[i]) <= least_us)
            w->late[w->late_count++] = i;
        w->task_start_us[i] = latest - l->spans_us[i];
        for (int32_t g = 0; g < l->group_size[i]; g++) {
            int64_t *need_us = w->need_us + (int64_t)w->row_of_node[nodes[g]] * p->widest;
            for (Mask left = masks[g]; left; left &= left - 1)
                need_us[__builtin_ctzll(left)] = w->task_start_us[i];
        }
    }
    w->late_known = 1;
}

int32_t some_task(Walker *w)
{
    if (!w->late_known)
        find_late(w);
    if (w->late_count && unit(w) < FOCUS)
        return w->late[below(w, w->late_count)];
    return w->now.order[below(w, w->now.count)];
}

static void note(Walker *w, int32_t task)
{
    Undo *undo = &w->undo[w->undo_count++];
    undo->task = task;
    undo->pick = w->choice.picks[task];
    undo->site = w->choice.sites[task];
    undo->held = w->choice.held[task];
    undo->priority = w->choice.priority[task];
}

static int32_t drawn_mode(Walker *w, int32_t task)
{
    const Task *t = &w->problem->tasks[task];
    if (w->odds && unit(w) < DRAWN) {
        const double *odds = w->odds + t->first_mode;
        const double at = unit(w) * odds[t->drawn_count - 1];
        int32_t k = 0;
        while (k < t->drawn_count - 1 && odds[k] <= at)
            k++;
        return k;
    }
    if (unit(w) < NEXT) {
        const int32_t following = w->choice.picks[task] + (unit(w) < 0.5 ? 1 : -1);
        if (following >= 0 && following < t->drawn_count)
            return following;
    }
    return below(w, t->drawn_count);
}

/* A task whose turn another takes, often one a few turns away. */
static int32_t like_task(Walker *w, int32_t task)
{
    const int32_t *order = w->now.order, count = w->now.count;
    if (unit(w) >= CLOSE)
        return order[below(w, count)];
    const int32_t turns = 1 + below(w, REACH);
    int32_t at = unit(w) < 0.5 ? turns : -turns;
    for (int32_t k = 0; order[k] != task; k++)
        at++;
    return order[at < 0 ? 0 : at < count ? at : count - 1];
}

/* A node, or none in particular. */
static int32_t drawn_site(Walker *w)
{
    if (unit(w) < ANY_NODE)
        return -1;
    return w->nodes_of_kind[below(w, w->first_of_kind[w->problem->kind_count])];
}

int change(Walker *w)
{
    const Problem *p = w->problem;
    const int degrees = unit(w) < OF_DEGREES, sites = !degrees && unit(w) < OF_SITES;
    int32_t some[2], count = 1;
    int changed = 0;
    w->undo_count = 0;
    some[0] = some_task(w);
    if (unit(w) < TWO)
        some[count++] = w->now.order[below(w, w->now.count)];
    for (int32_t s = 0; s < count; s++) {
        const int32_t i = some[s];
        if (sites) {
            note(w, i);
            const Undo *before = &w->undo[w->undo_count - 1];
            w->choice.sites[i] = drawn_site(w);
            w->choice.held[i] = 0;
            changed |= w->choice.sites[i] != before->site || before->held;
            continue;
        }
        if (!degrees) {
            /* Of two tasks the second may take what the first had. */
            const int32_t like = like_task(w, i);
            const int64_t theirs = s && like == some[0] ? w->undo[0].priority
                                                        : w->choice.priority[like];
            note(w, i);
            w->choice.priority[i] = theirs + below(w, 3) - 1;
            changed |= w->choice.priority[i] != w->undo[w->undo_count - 1].priority;
            continue;
        }
        Cascade row = {i, 1};
        if (unit(w) >= OF_TASKS)
            row = p->cascades[p->tasks[i].cascade];
        for (int32_t t = row.first; t < row.first + row.count; t++) {
            note(w, t);
            w->choice.picks[t] = drawn_mode(w, t);
            if (w->choice.picks[t] == w->undo[w->undo_count - 1].pick)
                continue;
            w->choice.held[t] = 0;
            changed = 1;
        }
    }
    return changed;
}

void measure_changed(Walker *w)
{
    for (int32_t k = 0; k < w->undo_count; k++)
        measure_cascade(w, &w->problem->cascades[w->problem->tasks[w->undo[k].task].cascade]);
}

void take_back(Walker *w)
{
    for (int32_t k = w->undo_count - 1; k >= 0; k--) {
        w->choice.picks[w->undo[k].task] = w->undo[k].pick;
        w->choice.sites[w->undo[k].task] = w->undo[k].site;
        w->choice.held[w->undo[k].task] = w->undo[k].held;
        w->choice.priority[w->undo[k].task] = w->undo[k].priority;
    }
    measure_changed(w);
}
