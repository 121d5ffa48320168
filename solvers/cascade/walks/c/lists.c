/* List schedules: quick_list.py in C. */

#include "walks.h"

#include <string.h>

#define US_PER_S 1000000

static const Link *nearest_link(const Walker *w, const Listing *l, int32_t before, int32_t node)
{
    const Problem *p = w->problem;
    const int32_t *nodes = l->group_node + (int64_t)before * p->longest_group;
    const Node *home = &p->nodes[node];
    const Link *best = NULL;
    for (int32_t k = 0; k < l->group_size[before]; k++)
        if (nodes[k] == node)
            return &home->intra;
    for (int32_t k = 0; k < l->group_size[before]; k++)
        if (p->nodes[nodes[k]].zone == home->zone)
            return &p->inter;
    for (int32_t k = 0; k < l->group_size[before]; k++) {
        const Link *link = &p->between[p->nodes[nodes[k]].zone * p->zone_count + home->zone];
        if (!best || link->bandwidth > best->bandwidth ||
            (link->bandwidth == best->bandwidth && link->latency_us < best->latency_us))
            best = link;
    }
    return best;
}

/* The hand-off of an input from the group of another task to a group. */
static int64_t lag_us(
    const Walker *w, const Listing *l, int64_t size, int32_t before, const Offer *group)
{
    const Problem *p = w->problem;
    const int32_t *nodes = l->group_node + (int64_t)before * p->longest_group;
    const Mask *masks = l->group_mask + (int64_t)before * p->longest_group;
    int64_t slowest = INT64_MAX, latency_us = 0;
    int32_t missing = 0, devices = 0;
    for (int32_t g = 0; g < group->size; g++) {
        Mask held = 0;
        for (int32_t k = 0; k < l->group_size[before]; k++)
            if (nodes[k] == group->node[g])
                held = masks[k];
        devices += __builtin_popcountll(group->mask[g]);
        const int32_t lacks = __builtin_popcountll(group->mask[g] & ~held);
        if (!lacks)
            continue;
        const Link *link = nearest_link(w, l, before, group->node[g]);
        missing += lacks;
        if (link->bandwidth < slowest)
            slowest = link->bandwidth;
        if (link->latency_us > latency_us)
            latency_us = link->latency_us;
    }
    if (!missing || !size)
        return 0;
    const __int128 moved = (__int128)size * missing * US_PER_S, rate = (__int128)devices * slowest;
    return latency_us + (int64_t)((moved + rate - 1) / rate);
}

/* Tasks as they become ready, by falling priority; by number where that is equal. */
static void sort_tasks(const Walker *w, Listing *l)
{
    const int64_t *late = w->late_us;
    for (int32_t k = 1; k < l->count; k++) {
        const int32_t i = l->order[k];
        int32_t at = k;
        for (; at > 0; at--) {
            const int32_t j = l->order[at - 1];
            if (late[j] < late[i] || (late[j] == late[i] && j < i))
                break;
            l->order[at] = j;
        }
        l->order[at] = i;
    }
}

static const Mode *mode_of(const Walker *w, int32_t task)
{
    return w->problem->tasks[task].modes + w->choice.picks[task];
}

void measure_cascade(Walker *w, const Cascade *row)
{
    const Problem *p = w->problem;
    for (int32_t i = row->first; i < row->first + row->count; i++) {
        int64_t mine = -w->choice.priority[i];
        for (int32_t k = 0; k < p->tasks[i].predecessor_count; k++) {
            const int64_t theirs = w->late_us[p->tasks[i].predecessors[k]];
            if (theirs > mine)
                mine = theirs;
        }
        w->late_us[i] = mine;
    }
    for (int32_t i = row->first + row->count - 1; i >= row->first; i--) {
        int64_t rest_us = 0;
        for (int32_t k = 0; k < p->tasks[i].successor_count; k++) {
            const int32_t s = p->tasks[i].successors[k];
            const int64_t us = w->after_us[s] + mode_of(w, s)->least_us;
            if (us > rest_us)
                rest_us = us;
        }
        w->after_us[i] = rest_us;
    }
}

static void free_all(Walker *w)
{
    const Problem *p = w->problem;
    for (int32_t x = 0; x < w->first_of_kind[p->kind_count]; x++) {
        const int64_t at = (int64_t)w->nodes_of_kind[x] * p->widest;
        memset(w->free_us + at, 0, sizeof(int64_t) * p->widest);
        for (int32_t d = 0; d < p->widest; d++)
            w->device[at + d] = (uint8_t)d;
    }
}

static int64_t arrival_us(const Walker *w, const Listing *l, int32_t task, const Offer *group)
{
    const Task *t = &w->problem->tasks[task];
    int64_t latest = 0;
    for (int32_t k = 0; k < t->predecessor_count; k++) {
        const int32_t before = t->predecessors[k];
        int64_t us = l->ends_us[before];
        if (t->input_bytes)
            us += lag_us(w, l, t->input_bytes, before, group);
        if (us > latest)
            latest = us;
    }
    return latest;
}

int decode(Walker *w, int64_t most_us)
{
    const Problem *p = w->problem;
    Listing *l = &w->trial;
    __int128 spare_us = (__int128)most_us * w->device_count;
    int64_t lost_us = 0;
    sort_tasks(w, l);
    free_all(w);
    for (int32_t k = 0; k < l->count; k++) {
        const Mode *mode = mode_of(w, l->order[k]);
        spare_us -= mode->degree * mode->least_us;
    }
    l->makespan_us = l->sum_us = 0;
    for (int32_t k = 0; k < l->count; k++) {
        const int32_t i = l->order[k];
        const Task *task = &p->tasks[i];
        const Mode *mode = mode_of(w, i);
        int64_t ready_us = 0;
        for (int32_t x = 0; x < task->predecessor_count; x++)
            if (l->ends_us[task->predecessors[x]] > ready_us)
                ready_us = l->ends_us[task->predecessors[x]];
        const Offer *offer = best_group(w, ready_us, mode, w->choice.sites[i]);
        if (!offer)
            return 0;
        int64_t end_us = offer->start_us + offer->span_us;
        if (p->waits && ready_us) {
            const int64_t there_us = arrival_us(w, l, i, offer);
            if (there_us > offer->start_us)
                end_us += there_us - offer->start_us;
        }
        lost_us += offer->waste_us + mode->degree * (end_us - offer->start_us) -
                   mode->degree * mode->least_us;
        if (end_us + w->after_us[i] > most_us || lost_us > spare_us)
            return 0;
        l->ends_us[i] = end_us;
        l->spans_us[i] = offer->span_us;
        l->group_size[i] = offer->size;
        for (int32_t g = 0; g < offer->size; g++) {
            l->group_node[(int64_t)i * p->longest_group + g] = offer->node[g];
            l->group_mask[(int64_t)i * p->longest_group + g] = offer->mask[g];
            occupy(w, offer->node[g], offer->mask[g], end_us);
        }
        if (end_us > l->makespan_us)
            l->makespan_us = end_us;
        l->sum_us += end_us;
    }
    return 1;
}
