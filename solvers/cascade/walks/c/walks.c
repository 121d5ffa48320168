/* Walks: plain.py in C, as native.py calls it. */

#include "walks.h"

#include <math.h>
#include <string.h>

static void copy_choice(const Walker *w, const Choice *from, Choice to)
{
    const int64_t tasks = w->problem->task_count, longest = w->problem->longest_group;
    memcpy(to.picks, from->picks, sizeof(int32_t) * tasks);
    memcpy(to.sites, from->sites, sizeof(int32_t) * tasks);
    memcpy(to.held, from->held, sizeof(int32_t) * tasks);
    memcpy(to.priority, from->priority, sizeof(int64_t) * tasks);
    for (int64_t i = 0; i < tasks; i++) {
        if (!from->held[i])
            continue;
        const int32_t size = to.group_size[i] = from->group_size[i];
        memcpy(to.group_node + i * longest, from->group_node + i * longest, sizeof(int32_t) * size);
        memcpy(to.group_mask + i * longest, from->group_mask + i * longest, sizeof(Mask) * size);
    }
}

static void keep_best(Walker *w)
{
    const Listing *l = &w->now;
    const Sums *now = sums(l);
    if (now->makespan_us > w->best_makespan_us ||
        (now->makespan_us == w->best_makespan_us && now->sum_us >= w->best_sum_us))
        return;
    w->best_makespan_us = now->makespan_us;
    w->best_sum_us = now->sum_us;
    w->best_count = l->count;
    memcpy(w->best_order, l->order, sizeof(int32_t) * l->count);
    copy_choice(w, &w->choice, w->best_choice);
}

static void go_on_from_trial(Walker *w)
{
    take_trial(w);
    keep_best(w);
}

static void measure_listed(Walker *w, const Listing *l)
{
    for (int32_t k = 0; k < l->count; k++)
        measure_cascade(w, &w->problem->cascades[w->problem->tasks[l->order[k]].cascade]);
}

static void swap_choices(Walker *w)
{
    const Choice kept = w->choice;
    w->choice = w->other_choice;
    w->other_choice = kept;
}

/* Whether a task may be held on its group: of the walker's nodes, and as its mode wants it. */
static int fits(const Walker *w, int32_t task)
{
    const Problem *p = w->problem;
    const Mode *mode = p->tasks[task].modes + w->choice.picks[task];
    const int64_t at = (int64_t)task * p->longest_group;
    int32_t devices = 0;
    for (int32_t g = 0; g < w->choice.group_size[task]; g++) {
        const int32_t n = w->choice.group_node[at + g];
        const Mask mask = w->choice.group_mask[at + g];
        const int32_t size = p->nodes[n].size;
        if (w->row_of_node[n] < 0 || p->nodes[n].kind != mode->kind || mask >> 1 >> (size - 1))
            return 0;
        devices += bits_of(mask);
    }
    return devices == mode->degree;
}

/* Goes on from a choice for some tasks in rising order; -1 where they end after a time. */
int64_t walker_begin(
    Walker *w, const int32_t *tasks, int32_t count, const Choice *choice, int64_t most_us)
{
    swap_choices(w);
    copy_choice(w, choice, w->choice);
    for (int32_t i = 0; i < w->problem->task_count; i++)
        w->choice.held[i] = w->choice.held[i] && fits(w, i);
    memcpy(w->trial.order, tasks, sizeof(int32_t) * count);
    w->trial.count = count;
    measure_listed(w, &w->trial);
    if (decode(w, most_us)) {
        go_on_from_trial(w);
        return sums(&w->now)->makespan_us;
    }
    swap_choices(w);
    measure_listed(w, &w->now);
    return -1;
}

/* Goes so many steps, at a heat in parts of the makespan. */
void walker_walk(Walker *w, int64_t steps, double heat)
{
    for (int64_t step = 0; step < steps; step++) {
        const double now_us = (double)sums(&w->now)->makespan_us;
        const double worse_us = -log(1 - unit(w)) * heat * now_us;
        const int64_t most_us = llrint(now_us + worse_us);
        if (!change(w))
            continue;
        measure_changed(w);
        w->trial.count = w->now.count;
        memcpy(w->trial.order, w->now.order, sizeof(int32_t) * w->now.count);
        if (decode(w, most_us))
            go_on_from_trial(w);
        else
            take_back(w);
    }
}

/* Makespan, sum of ends and number of tasks of the best, with its choice and its order. */
void walker_best(const Walker *w, int64_t *key, int32_t *order, const Choice *choice)
{
    key[0] = w->best_makespan_us;
    key[1] = w->best_sum_us;
    key[2] = w->best_count;
    memcpy(order, w->best_order, sizeof(int32_t) * w->best_count);
    copy_choice(w, &w->best_choice, *choice);
}

/* The same of where the walk is. */
void walker_now(const Walker *w, int64_t *key, int32_t *order, const Choice *choice)
{
    key[0] = sums(&w->now)->makespan_us;
    key[1] = sums(&w->now)->sum_us;
    key[2] = w->now.count;
    memcpy(order, w->now.order, sizeof(int32_t) * w->now.count);
    copy_choice(w, &w->choice, *choice);
}

/* A task of where the walk is, often one that delays the end. */
int32_t walker_task(Walker *w)
{
    return some_task(w);
}
