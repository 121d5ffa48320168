/* Problems and walkers: made and freed. */

#include "walks.h"

#include <stdlib.h>
#include <string.h>

int64_t walks_version(void)
{
    return WALKS_VERSION;
}

void walks_free_problem(Problem *p)
{
    if (!p)
        return;
    free(p->tasks);
    free(p->nodes);
    free(p->cascades);
    free(p->modes);
    free(p->numbers);
    free(p->rails);
    free(p->ppm);
    free(p->between);
    free(p);
}

static int read_tasks(Problem *p, const int64_t **at, int32_t **number)
{
    int32_t first_mode = 0;
    for (int32_t c = 0; c < p->cascade_count; c++) {
        p->cascades[c].first = (int32_t)*(*at)++;
        p->cascades[c].count = (int32_t)*(*at)++;
    }
    for (int32_t i = 0; i < p->task_count; i++) {
        Task *t = &p->tasks[i];
        t->cascade = (int32_t)*(*at)++;
        t->input_bytes = *(*at)++;
        t->mode_count = (int32_t)*(*at)++;
        t->drawn_count = (int32_t)*(*at)++;
        t->first_mode = first_mode;
        t->modes = p->modes + first_mode;
        for (int32_t k = 0; k < t->mode_count; k++) {
            Mode *mode = &p->modes[first_mode++];
            mode->degree = (int32_t)*(*at)++;
            mode->kind = (int32_t)*(*at)++;
            mode->duration_us = *(*at)++;
            mode->least_us = *(*at)++;
            mode->quickest_us = *(*at)++;
        }
        t->predecessor_count = (int32_t)*(*at)++;
        t->predecessors = *number;
        for (int32_t k = 0; k < t->predecessor_count; k++)
            *(*number)++ = (int32_t)*(*at)++;
        t->successor_count = (int32_t)*(*at)++;
        t->successors = *number;
        for (int32_t k = 0; k < t->successor_count; k++)
            *(*number)++ = (int32_t)*(*at)++;
    }
    return first_mode == p->mode_count;
}

static void read_nodes(Problem *p, const int64_t **at, int32_t **number)
{
    for (int32_t n = 0; n < p->node_count; n++) {
        Node *node = &p->nodes[n];
        node->kind = (int32_t)*(*at)++;
        node->size = (int32_t)*(*at)++;
        node->zone = (int32_t)*(*at)++;
        node->intra.bandwidth = *(*at)++;
        node->intra.latency_us = *(*at)++;
        node->nic = *number;
        for (int32_t d = 0; d < node->size; d++) {
            *(*number)++ = (int32_t)*(*at)++;
            p->rails[n * p->nic_count + node->nic[d]] |= (Mask)1 << d;
        }
    }
    for (int32_t k = 0; k < (p->nic_count + 1) * (p->nic_count + 1); k++)
        p->ppm[k] = *(*at)++;
    for (int32_t k = 0; k < p->zone_count * p->zone_count; k++) {
        p->between[k].bandwidth = *(*at)++;
        p->between[k].latency_us = *(*at)++;
    }
}

/* A problem as native.py packs it; NULL where that is not what is read. */
Problem *walks_new_problem(const int64_t *at, int64_t length)
{
    const int64_t *const end = at + length;
    Problem *p = calloc(1, sizeof(Problem));
    if (!p)
        return NULL;
    p->task_count = (int32_t)*at++;
    p->mode_count = (int32_t)*at++;
    p->node_count = (int32_t)*at++;
    p->cascade_count = (int32_t)*at++;
    p->kind_count = (int32_t)*at++;
    p->nic_count = (int32_t)*at++;
    p->zone_count = (int32_t)*at++;
    p->widest = (int32_t)*at++;
    p->longest_group = (int32_t)*at++;
    p->waits = (int32_t)*at++;
    const int64_t number_count = *at++;
    p->inter.bandwidth = *at++;
    p->inter.latency_us = *at++;
    p->tasks = calloc(p->task_count, sizeof(Task));
    p->nodes = calloc(p->node_count, sizeof(Node));
    p->cascades = calloc(p->cascade_count, sizeof(Cascade));
    p->modes = calloc(p->mode_count, sizeof(Mode));
    p->numbers = calloc(number_count, sizeof(int32_t));
    p->rails = calloc((size_t)p->node_count * p->nic_count, sizeof(Mask));
    p->ppm = calloc((size_t)(p->nic_count + 1) * (p->nic_count + 1), sizeof(int64_t));
    p->between = calloc((size_t)p->zone_count * p->zone_count, sizeof(Link));
    int32_t *number = p->numbers;
    if (p->tasks && p->nodes && p->cascades && p->modes && p->numbers && p->rails && p->ppm &&
        p->between && read_tasks(p, &at, &number)) {
        read_nodes(p, &at, &number);
        if (at == end && number - p->numbers == number_count)
            return p;
    }
    walks_free_problem(p);
    return NULL;
}

static int new_listing(Listing *l, int64_t tasks, int64_t longest_group)
{
    l->ends_us = calloc(tasks, sizeof(int64_t));
    l->spans_us = calloc(tasks, sizeof(int64_t));
    l->order = calloc(tasks, sizeof(int32_t));
    l->picks = calloc(tasks, sizeof(int32_t));
    l->sites = calloc(tasks, sizeof(int32_t));
    l->held = calloc(tasks, sizeof(int32_t));
    l->after = calloc(tasks + 1, sizeof(Sums));
    l->group_size = calloc(tasks, sizeof(int32_t));
    l->group_node = calloc(tasks * longest_group, sizeof(int32_t));
    l->group_mask = calloc(tasks * longest_group, sizeof(Mask));
    return l->ends_us && l->spans_us && l->order && l->picks && l->sites && l->held && l->after &&
           l->group_size && l->group_node && l->group_mask;
}

static void free_listing(Listing *l)
{
    free(l->ends_us);
    free(l->spans_us);
    free(l->order);
    free(l->picks);
    free(l->sites);
    free(l->held);
    free(l->after);
    free(l->group_size);
    free(l->group_node);
    free(l->group_mask);
}

static int new_choice(Choice *choice, int64_t tasks, int64_t longest_group)
{
    choice->picks = calloc(tasks, sizeof(int32_t));
    choice->sites = calloc(tasks, sizeof(int32_t));
    choice->held = calloc(tasks, sizeof(int32_t));
    choice->priority = calloc(tasks, sizeof(int64_t));
    choice->group_size = calloc(tasks, sizeof(int32_t));
    choice->group_node = calloc(tasks * longest_group, sizeof(int32_t));
    choice->group_mask = calloc(tasks * longest_group, sizeof(Mask));
    return choice->picks && choice->sites && choice->held && choice->priority &&
           choice->group_size && choice->group_node && choice->group_mask;
}

static void free_choice(Choice *choice)
{
    free(choice->picks);
    free(choice->sites);
    free(choice->held);
    free(choice->priority);
    free(choice->group_size);
    free(choice->group_node);
    free(choice->group_mask);
}

static int new_offer(Offer *offer, int64_t longest_group)
{
    offer->node = calloc(longest_group, sizeof(int32_t));
    offer->mask = calloc(longest_group, sizeof(Mask));
    return offer->node && offer->mask;
}

static void free_offer(Offer *offer)
{
    free(offer->node);
    free(offer->mask);
}

void walker_free(Walker *w)
{
    if (!w)
        return;
    free(w->odds);
    free(w->nodes_of_kind);
    free(w->first_of_kind);
    free(w->row_of_node);
    free(w->slots);
    free(w->kept);
    free_choice(&w->choice);
    free_choice(&w->other_choice);
    free_choice(&w->best_choice);
    free_listing(&w->now);
    free_listing(&w->trial);
    free(w->best_order);
    free(w->after_us);
    free(w->late_us);
    free(w->pool_us);
    free(w->need_us);
    free(w->task_start_us);
    free(w->late);
    free(w->undo);
    free(w->rooms);
    free_offer(&w->here);
    free_offer(&w->wide);
    free_offer(&w->wider);
    free_offer(&w->same);
    free(w);
}

/* The nodes of each type, and their slots before anything runs. */
static void set_rows(Walker *w, const int32_t *nodes, int32_t node_count)
{
    const Problem *p = w->problem;
    int32_t row = 0;
    for (int32_t n = 0; n < p->node_count; n++)
        w->row_of_node[n] = -1;
    for (int32_t k = 0; k < p->kind_count; k++) {
        for (int32_t x = 0; x < node_count; x++) {
            const Node *node = &p->nodes[nodes[x]];
            if (node->kind != k)
                continue;
            for (int32_t d = 0; d < node->size; d++)
                w->kept[(int64_t)row * p->widest + d] = d;
            w->nodes_of_kind[row] = nodes[x];
            w->row_of_node[nodes[x]] = row++;
            w->device_count += node->size;
        }
        w->first_of_kind[k + 1] = row;
    }
    w->slot_count = row * p->widest;
    w->kept_count = 1;
}

/* A walker on some nodes of a problem, in rising order; NULL where memory is short. */
Walker *walker_new(
    const Problem *p, const int32_t *nodes, int32_t node_count, const double *odds, uint64_t seed)
{
    Walker *w = calloc(1, sizeof(Walker));
    if (!w)
        return NULL;
    const size_t tasks = p->task_count, slots = (size_t)node_count * p->widest;
    const size_t kept = tasks / KEPT_EVERY + 1;
    int fits = new_choice(&w->choice, tasks, p->longest_group) &&
               new_choice(&w->other_choice, tasks, p->longest_group) &&
               new_choice(&w->best_choice, tasks, p->longest_group) &&
               new_listing(&w->now, tasks, p->longest_group) &&
               new_listing(&w->trial, tasks, p->longest_group) &&
               new_offer(&w->here, p->longest_group) && new_offer(&w->wide, p->longest_group) &&
               new_offer(&w->wider, p->longest_group) && new_offer(&w->same, p->longest_group);
    fits &= (w->nodes_of_kind = calloc(node_count, sizeof(int32_t))) != NULL;
    fits &= (w->first_of_kind = calloc(p->kind_count + 1, sizeof(int32_t))) != NULL;
    fits &= (w->row_of_node = calloc(p->node_count, sizeof(int32_t))) != NULL;
    fits &= (w->slots = calloc(slots, sizeof(Slot))) != NULL;
    fits &= (w->kept = calloc(kept * slots, sizeof(Slot))) != NULL;
    fits &= (w->best_order = calloc(tasks, sizeof(int32_t))) != NULL;
    fits &= (w->after_us = calloc(tasks, sizeof(int64_t))) != NULL;
    fits &= (w->late_us = calloc(tasks, sizeof(int64_t))) != NULL;
    fits &= (w->pool_us = calloc(slots, sizeof(int64_t))) != NULL;
    fits &= (w->need_us = calloc(slots, sizeof(int64_t))) != NULL;
    fits &= (w->task_start_us = calloc(tasks, sizeof(int64_t))) != NULL;
    fits &= (w->late = calloc(tasks, sizeof(int32_t))) != NULL;
    fits &= (w->undo = calloc(2 * tasks, sizeof(Undo))) != NULL;
    fits &= (w->rooms = calloc(p->node_count, sizeof(Room))) != NULL;
    if (fits && odds) {
        fits &= (w->odds = calloc(p->mode_count, sizeof(double))) != NULL;
        if (fits)
            memcpy(w->odds, odds, sizeof(double) * p->mode_count);
    }
    if (!fits) {
        walker_free(w);
        return NULL;
    }
    w->problem = p;
    w->chance = seed;
    w->best_makespan_us = w->best_sum_us = INT64_MAX;
    set_rows(w, nodes, node_count);
    return w;
}
